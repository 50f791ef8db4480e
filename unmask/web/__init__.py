"""The workbench: everything that the command line does, in a browser."""
