"""Memory-mapped arrays of tokens: write, read, verify."""
