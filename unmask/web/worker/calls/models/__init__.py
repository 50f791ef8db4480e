"""What models there are, what they can do, and what of them can be changed."""
