"""Words get vectors: spaces of them, their files, and what can be asked of them."""
