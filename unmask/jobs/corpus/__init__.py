"""Preparation of a corpus: cleaned, deduplicated, tokenized."""
