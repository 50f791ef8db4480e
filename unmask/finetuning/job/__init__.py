"""A fine-tuning job before its first step: data, model, derived options, record and notes."""
