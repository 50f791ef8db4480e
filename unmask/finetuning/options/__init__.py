"""Options of fine-tuning: as given, their values, and those that are derived."""
