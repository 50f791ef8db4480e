"""Objectives on pairs of sentences or texts."""
