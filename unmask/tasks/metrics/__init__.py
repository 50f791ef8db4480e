"""Metrics of classification, regression, tagging, generation and question answering."""
