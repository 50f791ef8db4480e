"""Files of tokenizers: tokenizer.json, SentencePiece models, vocabularies."""
