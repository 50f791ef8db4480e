"""What the catalogue holds: a model described, and what its objective makes of a text."""
