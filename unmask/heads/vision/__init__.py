"""Heads of networks that read pictures."""
