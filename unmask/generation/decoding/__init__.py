"""Reading of one more token of each text, with a cache."""
