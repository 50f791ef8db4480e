"""Objectives of inputs that are not pieces of words: characters and patches of pictures."""
