"""Attacks on what the package releases and sends: what an observer can really learn."""
