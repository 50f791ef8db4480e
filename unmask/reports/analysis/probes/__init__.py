"""Pages and tables of probes."""
