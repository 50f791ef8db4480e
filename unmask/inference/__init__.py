"""Inference: pipelines, ensembles, several adapters, export."""
