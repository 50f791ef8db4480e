"""Heads: from hidden states to scores and losses."""
