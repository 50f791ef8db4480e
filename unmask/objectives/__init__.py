"""Pretraining objectives: which tokens are targets, and how the input is corrupted."""
