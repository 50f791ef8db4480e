"""Objectives with partial visibility (UniLM, Dong et al. 2019, arXiv:1905.03197)."""
