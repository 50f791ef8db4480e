"""What a decision of a model rests on: attributions to words, and how faithful they are."""
