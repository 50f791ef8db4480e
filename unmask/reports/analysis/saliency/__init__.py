"""Page and tables of the analysis of saliency."""
