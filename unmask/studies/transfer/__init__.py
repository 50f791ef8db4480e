"""Studies of cross-lingual transfer: tuned in one language, scored in others."""
