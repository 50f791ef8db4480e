"""Tasks as cloze questions (Schick and Schütze 2021, arXiv:2001.07676)."""
