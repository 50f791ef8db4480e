"""Alignment of two spaces of word vectors."""
