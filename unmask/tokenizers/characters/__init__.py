"""Tokenizers without a learned vocabulary: code points and bytes."""
