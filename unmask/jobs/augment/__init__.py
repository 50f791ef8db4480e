"""Augment: a new training table, made of a task's table with a model."""
