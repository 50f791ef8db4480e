"""Text in, answers out: pipelines, ensembles, several adapters, export."""
