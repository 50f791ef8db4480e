"""Suites of benchmarks, each a TOML file."""
