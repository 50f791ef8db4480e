"""Jobs of word vectors: learn, align and draw them."""
