"""Helpers without privacy semantics: validation, random streams, devices, records in files."""

__version__ = "0.1.0"
