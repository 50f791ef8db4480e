"""Published decoders, one file per family."""
