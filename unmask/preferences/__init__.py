"""Learning from people's preferences: losses of pairs, policy gradients, rewards."""
