"""Studies: several ways to pretrain under one budget, compared on the same tasks."""
