"""Checkpoints: folders that are whole or absent."""
