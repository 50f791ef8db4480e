"""Jobs behind the commands: prepare, pretrain, fine-tune, evaluate, word vectors, align."""
