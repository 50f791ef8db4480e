"""Commands as forms: described, and read back into the words of a command line."""
