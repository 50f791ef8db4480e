"""A run of preference optimization, from its options to its folder."""
