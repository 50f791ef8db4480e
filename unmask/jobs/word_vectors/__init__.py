"""Jobs of word vectors: train, align and draw them."""
