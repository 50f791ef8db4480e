"""Tokenizers: text to token ids, with trained or loaded vocabularies."""
