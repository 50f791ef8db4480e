"""Vocabularies of what is predicted where the input is characters or bytes."""
