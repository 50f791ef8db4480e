"""Training: the recipe, optimizers and schedules, and a loop that its caller owns."""
