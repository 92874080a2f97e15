"""Helpers that know nothing of privacy: validation, random streams, devices, files, displays."""
