"""Options as flags of a command line; those that commands have beside the options of jobs."""
