"""Heads that score the vocabulary."""
