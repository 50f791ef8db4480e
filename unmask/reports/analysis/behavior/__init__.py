"""Pages and tables of behavior without tuning."""
