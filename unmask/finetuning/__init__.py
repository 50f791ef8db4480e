"""Fine-tuning: formulations of a task for a model, methods, and results."""
