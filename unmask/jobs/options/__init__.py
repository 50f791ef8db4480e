"""Options of each job, for its Python function and its command."""
