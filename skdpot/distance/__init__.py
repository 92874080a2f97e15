"""Wing distance."""
