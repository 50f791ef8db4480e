"""BERT and the encoders that share its architecture."""
