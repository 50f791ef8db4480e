"""Probes: what can be read from frozen hidden states, beside controls."""
