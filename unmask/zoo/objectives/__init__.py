"""Objectives by name, and fitting them to a model."""
