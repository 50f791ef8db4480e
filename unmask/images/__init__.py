"""Pictures from folders, archives, tables and arrays; decoded, resized, augmented and stored."""
