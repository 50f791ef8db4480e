"""Formats of pictures: files of folders and archives, tables, Parquet, arrays."""
