"""Metrics of captions with several references: BLEU-1 to 4, CIDEr, METEOR, and diversity."""
