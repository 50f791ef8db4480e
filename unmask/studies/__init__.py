"""Studies: several ways to pretrain, compared under one budget on the same tasks."""
