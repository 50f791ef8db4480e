"""GPT, GPT-2, GPT-3."""
