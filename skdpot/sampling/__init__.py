"""Wing sampling."""
