"""The workbench: a local page from which everything that the command line does can be done."""
