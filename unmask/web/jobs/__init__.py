"""Jobs of the workbench: command lines in processes of their own, with their state on disk."""
