"""Measures of written responses: how varied they are, and which of two a judge prefers."""
