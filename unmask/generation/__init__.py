"""Text from a model: one token after another, or into what is hidden."""
