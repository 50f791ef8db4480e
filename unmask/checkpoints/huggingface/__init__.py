"""Models in the layout of Hugging Face transformers, reading and writing."""
