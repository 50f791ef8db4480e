"""How a kind of model is asked a kind of task: heads, cloze, text to text."""
