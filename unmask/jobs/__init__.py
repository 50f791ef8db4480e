"""Jobs that the commands run: prepare, pretrain, fine-tune, evaluate, word vectors, align."""
