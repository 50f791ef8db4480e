"""Text to ids: vocabularies, learned or read, and the shards of token ids that training reads."""
