"""Published encoder-decoders, one file per family."""
