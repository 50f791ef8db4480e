"""Examples -> batches: collated, ordered, loaded by workers."""
