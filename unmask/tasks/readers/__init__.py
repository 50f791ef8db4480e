"""Files of rows: tables, Parquet, JSON lines, CoNLL and SQuAD, read by one reader."""
