"""Attention and what it may see."""
