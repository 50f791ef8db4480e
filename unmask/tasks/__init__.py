"""What is learned: kinds of tasks, their files, suites of benchmarks, and metrics."""
