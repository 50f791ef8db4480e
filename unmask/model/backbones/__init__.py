"""Networks from token ids to hidden states."""
