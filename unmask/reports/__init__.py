"""The report of a run: one self-contained page, and its charts."""
