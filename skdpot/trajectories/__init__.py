"""Wing trajectories."""
