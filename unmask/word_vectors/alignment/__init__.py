"""Mapping one space of word vectors onto another."""
