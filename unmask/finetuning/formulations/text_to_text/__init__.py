"""Tasks as text in, text out (Raffel et al. 2020, arXiv:1910.10683)."""
