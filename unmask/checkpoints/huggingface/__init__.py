"""Models in the layout of Hugging Face transformers, both ways."""
