"""What is trained, and at which learning rates."""
