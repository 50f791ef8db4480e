"""The device of a training: processes that share it, memory of activations."""
