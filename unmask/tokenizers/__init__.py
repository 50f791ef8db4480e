"""Tokenizers: text to token ids, with vocabularies that are learned or read."""
