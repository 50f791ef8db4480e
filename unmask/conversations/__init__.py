"""Conversations: their turns in the formats that data has, and as the text that a model reads."""
