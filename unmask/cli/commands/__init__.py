"""Commands by subject."""
