"""Objectives by name, and their adaptation to presets."""
