"""Heads that only pretraining uses."""
