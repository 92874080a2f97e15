"""Wing fair."""
