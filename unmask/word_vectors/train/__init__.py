"""Learning word vectors."""
