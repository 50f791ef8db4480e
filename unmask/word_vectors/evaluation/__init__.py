"""Word similarity and analogies."""
