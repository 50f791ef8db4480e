"""Tasks of conversations: responses that are learned, and responses that are compared."""
