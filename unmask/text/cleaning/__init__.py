"""Cleaning of a corpus: rules for documents and lines, duplicates, evaluation texts."""
