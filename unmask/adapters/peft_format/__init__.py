"""Adapters in the layout of PEFT, reading and writing."""
