"""What runs train on: batches of texts or of pictures."""
