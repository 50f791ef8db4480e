"""Published encoder-decoders: one file a family."""
