"""Networks: one Transformer from parts, and what it is assembled from."""
