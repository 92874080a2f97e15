"""Noisy counts of the scores of each group and class, from which the rates of any rule follow.

The margins of the records of each list (`skdpot.fair.score_lists`), group and class are counted in
a histogram. The number of records above each margin follows, and so do the rates of every rule that
decides by a threshold per list. A record is in one histogram, so all of them together cost as much
as a single one.
"""

import math

import numpy as np

from skdpot._utils.streams import SecretStream
from skdpot.fair.score_law import ScoreLaw
from skdpot.fair.score_lists import ScoreLists
from skdpot.nets.cells import Cells
from skdpot.nets.output_tables import Seen, TableNoise, noisy_counts
from skdpot.privacy.events import Event, GaussianEvent, NonPrivateEvent
from skdpot.privacy.noise import calibrate_lattice, required_bits
from skdpot.release.strategy import Energy, best_strategy

_N_BINS = 64  # of margins
_DIRECTION, _CENTRE, _HALF_WIDTH = np.ones((1, 1)), np.zeros(1), np.ones(1)  # margins in [-1, 1]
_ENERGY = Energy.unlimited(1)  # of one direction


def plan_score_tables(mu: float) -> TableNoise:
    r"""Plan the release of the margins of all lists.

    The record that replaces another has the same group, with any features and class. So one count
    moves from a bin to a bin of the same or another list, group and class. The sensitivity is
    `Strategy.sensitivity` with private classes, for one slice without a limit.
    """
    strategy = best_strategy(_N_BINS, _ENERGY)
    sigma, lattice, label = 0.0, strategy.lattice, "Scores of groups and classes"
    event: Event = NonPrivateEvent(label=label)
    if math.isfinite(mu):
        moved = strategy.sensitivity(_ENERGY, conditional=True)
        noise = calibrate_lattice(mu, moved, data_lattice=lattice)
        sigma, lattice = noise.sigma, noise.lattice
        required_bits(sigma / lattice, mu)
        event = GaussianEvent(**vars(noise), label=label)
    return TableNoise(strategy=strategy, sigma=sigma, lattice=lattice, mu=mu, event=event)


def release_score_tables(
    lists: ScoreLists,
    margins: np.ndarray,
    histograms: np.ndarray,
    cells: Cells,
    noise: TableNoise,
    stream: SecretStream,
    seen: Seen,
) -> ScoreLaw:
    """Count margins, (n, 1), once, each in its histogram; the caller has charged the noise.

    For audits, `seen` maps records and their groups to margins and histograms.
    """
    statistic = noisy_counts(
        margins,
        histograms,
        n_codes=lists.n_tables,
        directions=_DIRECTION,
        centres=_CENTRE,
        half_widths=_HALF_WIDTH,
        noise=noise,
        stream=stream,
        seen=seen,
        known=cells.codes,
    )
    decoder = noise.strategy.decoder
    above = np.vstack([decoder[-1], decoder[-1] - decoder])  # from each bin on
    return ScoreLaw(
        lists,
        np.array(cells.sizes),
        lists.by_group(statistic[:, 0] @ above.T),
        noise.sigma**2 * above @ above.T,
        lists.holds.astype(np.float64),
    )
