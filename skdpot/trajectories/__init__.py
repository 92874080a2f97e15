"""Trajectories of a population from one point per person."""
