"""Analysis: what a model knows, and where; everything is measured beside a control."""
