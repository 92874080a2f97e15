"""Helpers without privacy semantics: random streams, validation, devices, progress."""

__version__ = "0.1.0"
