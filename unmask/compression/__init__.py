"""Compression: smaller models, by weights of few bits and by weights that are taken out."""
