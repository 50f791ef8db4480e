"""Generation: token by token, beam search, speculative decoding, and filling blanks."""
