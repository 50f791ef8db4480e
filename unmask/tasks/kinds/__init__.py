"""Kinds of tasks: their files, formulation, labels and metrics."""
