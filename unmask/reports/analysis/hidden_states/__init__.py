"""Pages and tables of analyses of hidden states."""
