"""Edge probing of spans of words: Tenney et al. 2019, arXiv:1905.06316."""
