"""Estimators: validate, release, solve, store.

Import them from `skdpot`, which loads each on first use: some need torch, others do without.
"""

__all__: list[str] = []
