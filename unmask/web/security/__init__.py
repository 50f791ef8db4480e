"""Who may ask the workbench, and for how much."""
