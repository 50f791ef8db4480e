"""Studies of probes: what the layers of pretraining variants know."""
