"""What people see of a run: the report."""
