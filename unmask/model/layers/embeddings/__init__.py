"""Token vectors."""
