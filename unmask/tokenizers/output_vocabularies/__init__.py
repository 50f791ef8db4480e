"""Output vocabularies of models with character or byte input."""
