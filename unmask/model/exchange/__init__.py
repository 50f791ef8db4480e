"""Weights and configurations of other libraries: names and keys, both ways."""
