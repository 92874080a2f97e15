"""Helpers without privacy semantics: validation, random streams, devices, records in files."""
