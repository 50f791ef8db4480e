"""Checkpoints: folders that are written atomically, and exchange with transformers."""
