"""Examples to batches: collation, order of the data, loader workers."""
