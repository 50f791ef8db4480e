"""Families of networks that read pictures."""
