"""Published encoders: one file a family."""
