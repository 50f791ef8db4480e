"""Studies of compression: what each method costs in quality, and what it saves."""
