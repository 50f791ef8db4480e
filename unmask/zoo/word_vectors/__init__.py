"""Published word vectors."""
