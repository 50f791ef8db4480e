"""Word vectors: training, file formats, alignment, and evaluation."""
