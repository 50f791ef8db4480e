"""Behavior without tuning: what a model predicts, scored as it was pretrained."""
