"""Heads that only pretraining has."""
