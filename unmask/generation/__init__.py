"""Generation: greedy, sampling, beam search, speculative decoding, and fill-mask."""
