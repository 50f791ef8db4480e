"""Analyses of a model: their options, and the files that they write."""
