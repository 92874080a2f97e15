"""Where to cut predicted probabilities, read off noisy histograms.

A penalty pulls the scores of groups together, and with them all scores towards each other: few
reach one half when the second class is the rarer one. The cut that predicts best is found from the
distribution of the scores of each class, which costs one release.
"""

import math

import numpy as np

from skdpot._utils.rng import SecretStream
from skdpot.nets.output_tables import TableNoise, noisy_counts
from skdpot.slicing.histogram import bin_edges

__all__ = ["tuned_threshold"]


def tuned_threshold(
    probabilities: np.ndarray, labels: np.ndarray, noise: TableNoise, stream: SecretStream
) -> float:
    """Release where most records are predicted correctly.

    Parameters
    ----------
    probabilities : ndarray of shape (n_samples,)
        Of the second class, under a network that is public.
    labels : ndarray of shape (n_samples,), intp
        Private class of each record, 0 or 1.
    noise : TableNoise
        Strategy and noise.
    stream : SecretStream
        Where the noise comes from.

    Returns
    -------
    float
        An inner edge of the bins of [0, 1]; the one nearest to one half of those that are
        equally good.

    Privacy
    -------
    One release of a `GaussianEvent` that the caller has charged, under replace-one: the record
    may change its class, so that the sensitivity is
    ``strategy.sensitivity(1, conditional=True)``.
    """
    strategy = noise.strategy
    half = np.full(1, 0.5)
    statistic = noisy_counts(
        probabilities[:, None] - 0.5, labels, 2, np.ones((1, 1)), half, noise, stream
    )
    below = statistic[:, 0] @ strategy.decoder.T  # records of each class up to each upper edge
    correct = (below[0] + below[1, -1] - below[1])[:-1]
    edges = bin_edges(half, strategy.n_bins)[0, 1:-1]
    best = np.flatnonzero(correct >= correct.max() - 1e-9 * math.fabs(correct.max()))
    return float(edges[best[np.argmin(np.abs(edges[best]))]] + 0.5)
