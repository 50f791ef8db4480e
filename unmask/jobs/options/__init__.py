"""Options of each job: what its Python function and its command take."""
