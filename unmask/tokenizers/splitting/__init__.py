"""Texts in parts whose tokens together are those of the whole."""
