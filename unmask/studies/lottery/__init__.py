"""Lottery tickets: pruned weights trained again from their start, beside controls."""
