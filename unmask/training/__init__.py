"""Training: a recipe, what moves the weights, and a loop that its caller owns."""
