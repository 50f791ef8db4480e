"""Studies: pretraining variants compared under one budget on the same tasks."""
