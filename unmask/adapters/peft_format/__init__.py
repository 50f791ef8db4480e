"""Adapters in the layout of PEFT, both ways."""
