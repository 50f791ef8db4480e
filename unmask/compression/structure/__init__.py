"""Structure: heads, columns and ranks that are removed from the layers of a Transformer."""
