"""Evaluation: likelihood, perplexity, prompted tasks, sentence embeddings and baselines."""
