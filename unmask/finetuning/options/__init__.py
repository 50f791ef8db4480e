"""Options of fine-tuning: as given, their values, and derived defaults."""
