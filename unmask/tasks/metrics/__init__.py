"""Figures of answers that are more than one label, one number or the tags of words."""
