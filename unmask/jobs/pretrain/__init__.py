"""Pretraining from options to a run folder."""
