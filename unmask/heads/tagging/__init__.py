"""Heads that label each token."""
