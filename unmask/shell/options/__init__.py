"""Options of commands that have more than those of their job."""
