"""Published models as data, one file per family."""
