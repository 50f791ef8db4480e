"""Published decoders: one file a family."""
