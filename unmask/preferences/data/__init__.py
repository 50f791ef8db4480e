"""Rows of preferences, and the examples that a model reads of them."""
