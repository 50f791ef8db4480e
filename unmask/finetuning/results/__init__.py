"""Scores, errors and predictions of a fine-tuned model, and its folder."""
