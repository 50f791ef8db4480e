"""Heads: from hidden states to logits and losses."""
