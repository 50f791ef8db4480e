"""Devices: memory."""
