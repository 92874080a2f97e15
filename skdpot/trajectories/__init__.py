"""Trajectories of a population from one point a person."""
