"""Denoising objectives: noise on the source, the text as target."""
