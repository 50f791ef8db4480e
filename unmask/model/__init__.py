"""Networks: one Transformer and other backbones, assembled from parts."""
