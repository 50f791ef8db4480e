"""The model that fine-tuning begins with: weights, heads, tokens of the task."""
