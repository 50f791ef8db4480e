"""Small modules beside a frozen model, that learn a task in its place."""
