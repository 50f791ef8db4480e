"""Aligning two spaces of word vectors."""
