"""Published encoders, one file per family."""
