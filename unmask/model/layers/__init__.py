"""Layers that backbones are made of."""
