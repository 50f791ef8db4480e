"""What the runs of a workplace are: listed, read as they grow, compared, moved away."""
