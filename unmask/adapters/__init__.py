"""Adapters: small trainable modules attached to a frozen model by hooks."""
