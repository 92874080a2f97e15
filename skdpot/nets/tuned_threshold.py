"""Where to cut predicted probabilities, read off noisy histograms.

A penalty pulls the scores of groups together, and with them all scores towards each other: few
reach one half when the second class is the rarer one, and the selection rates of groups are then
small numbers with a large ratio. Here as many records are selected as there are of the second
class. It takes two releases: the first counts the classes and finds the range that the scores
are in, the second measures their distribution there.
"""

import numpy as np

from skdpot._utils.rng import SecretStream
from skdpot.nets.output_tables import OutputTables, TableNoise, noisy_counts, release_tables
from skdpot.slicing.decoding import decode_cumulative
from skdpot.slicing.table import CDFTable

__all__ = ["N_TUNING_RELEASES", "tuned_threshold"]

N_TUNING_RELEASES = 2

_LIMIT = np.full(1, 0.5)  # of probabilities less one half
_DIRECTION = np.ones((1, 1))
_INSIDE = 1e-6


def tuned_threshold(
    probabilities: np.ndarray, labels: np.ndarray, noise: TableNoise, stream: SecretStream
) -> float:
    """Release the score that as many records exceed as belong to the second class.

    Parameters
    ----------
    probabilities : ndarray of shape (n_samples,)
        Of the second class, under a network that is public.
    labels : ndarray of shape (n_samples,), intp
        Private class of each record, 0 or 1.
    noise : TableNoise
        Strategy and noise of each release.
    stream : SecretStream
        Where the noise comes from.

    Returns
    -------
    float
        In (0, 1).

    Privacy
    -------
    `N_TUNING_RELEASES` releases of a `GaussianEvent` that the caller has charged, under
    replace-one. In the first the record may change its class, so that the sensitivity is
    ``strategy.sensitivity(1, conditional=True)``, which also covers the second.
    """
    n = len(labels)
    values, strategy = probabilities[:, None] - 0.5, noise.strategy
    statistic = noisy_counts(values, labels, 2, _DIRECTION, _LIMIT, noise, stream)[:, 0]
    totals = statistic @ strategy.decoder[-1]
    second = float(np.clip((totals[1] - totals[0] + n) / 2.0, 1.0, n - 1.0))
    pooled = decode_cumulative(statistic.sum(axis=0, keepdims=True), strategy, n)
    coarse = OutputTables((CDFTable(_DIRECTION, _LIMIT, pooled),), np.zeros(1))
    together = np.zeros(n, dtype=np.intp)
    fine = release_tables(
        values, together, (n,), _DIRECTION, _LIMIT, noise, stream, previous=coarse
    )
    cut = fine.tables[0].quantiles_along(0, np.array([1.0 - second / n]))[0] + fine.centres[0]
    return float(np.clip(0.5 + cut, _INSIDE, 1.0 - _INSIDE))
