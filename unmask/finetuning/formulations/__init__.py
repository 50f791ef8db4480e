"""Formulations of tasks for kinds of models: classification heads, cloze, text to text."""
