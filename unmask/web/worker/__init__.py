"""The worker: one process that opens models and answers the workbench's questions about them."""
