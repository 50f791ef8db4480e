"""The command line `unmask`."""
