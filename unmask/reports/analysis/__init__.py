"""Pages and tables of what `unmask probe` finds."""
