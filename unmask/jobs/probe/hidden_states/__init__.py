"""Analyses of hidden states: their options, and the reports that they make."""
