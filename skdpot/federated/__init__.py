"""Distances between parties who cannot share their data: parties, messages, protocols."""
