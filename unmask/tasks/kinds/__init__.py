"""Kinds of tasks: what files say, how models are asked, what answers are worth."""
