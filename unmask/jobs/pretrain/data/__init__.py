"""What a run reads: shards of text, or pictures with their captions."""
