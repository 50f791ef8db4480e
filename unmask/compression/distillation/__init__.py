"""Distillation: the teachers of a student, and the terms of its loss."""
