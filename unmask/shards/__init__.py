"""Memory-mapped arrays of token ids: write, read, verify."""
