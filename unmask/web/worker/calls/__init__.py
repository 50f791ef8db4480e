"""The calls that the worker answers: plain functions from arguments to JSON."""
