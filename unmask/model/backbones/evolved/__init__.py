"""The Evolved Transformer: its layers, and the parts that name them."""
