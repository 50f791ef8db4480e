"""Learning from responses that the model writes, by a reward."""
