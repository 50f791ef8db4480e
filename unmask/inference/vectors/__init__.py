"""Word vectors as models: loading them, and the similarity of sentences."""
