"""The workbench: a local page from which everything is started and watched (`unmask serve`)."""
