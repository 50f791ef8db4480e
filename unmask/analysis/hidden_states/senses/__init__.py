"""Senses of words: pairs of occurrences, thresholds of their cosines, nearest occurrences."""
