"""Tasks: types of tasks, readers of labeled files, suites of benchmarks, and metrics."""
