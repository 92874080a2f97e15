"""Optimal transport without privacy: directions, plans, particle flows and Sinkhorn."""
