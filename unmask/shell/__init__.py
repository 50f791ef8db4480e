"""The words of the command line: options as flags, read and written."""
