"""Heads that label a whole text."""
