"""Masks: weights that are zero by another model, or by gates that are learned."""
