"""Wing search."""
