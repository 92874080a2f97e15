"""Helpers without privacy semantics: random streams, validation, devices, progress."""
