"""Attention maps: what each head attends to, against syntax and alignments."""
