"""The initial model of fine-tuning: weights, heads, and tokens of the task."""
