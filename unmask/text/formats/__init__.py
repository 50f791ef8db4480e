"""Formats that hold text: compressed files, CSV and TSV, JSON lines, Parquet, the Hub."""
