r"""Choosing marginals by how far a model is off, without releasing how far.

The misfits of m marginals, released with Gaussian noise, need noise of scale :math:`2 \sqrt m`
over mu. The exponential mechanism releases only which marginals are off most: k choices cost what
k numbers cost, and the noise that a large misfit has to exceed grows with the logarithm of m.

*Exact draws.* Scores are misfits less public offsets, both multiples of 1/16, and rates are floats,
so that :math:`e^{-\lambda (\max_j q_j - q_i)}` is known to any precision. The weight of a
candidate is this number, rounded down to a multiple of :math:`2^{-b}`, and a candidate is drawn by
a uniform integer below the sum of all weights: no floating-point number depends on the choice. For
m candidates the probabilities are off by less than :math:`m 2^{2-b}` in total variation, and those
of k choices by k times as much. `required_bits` makes :math:`2^{35} 2^{1-b}` negligible beside the
:math:`10^{-18}` that is charged for the error of a sampler, so that k m may be up to
:math:`2^{34}`.
"""

import decimal
import itertools
import math
from bisect import bisect_right
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from skdpot._utils.validation import SecretStream
from skdpot.privacy.events import Event
from skdpot.privacy.noise import required_bits
from skdpot.privacy.selection import CHOICE_MU
from skdpot.release.contingency import (
    PREDICTED,
    FloatArray,
    IntArray,
    Marginal,
    exact_misfits,
    largest_change,
    on_lattice,
)
from skdpot.release.release import Release, released
from skdpot.sources import Rows


def choice_sensitivity(marginals: Sequence[Marginal]) -> float:
    """Return by how much one row can move a score against another one, replace-one.

    A misfit moves by at most `largest_change`, up or down, and offsets are public.
    """
    return 2.0 * max(map(largest_change, marginals))


def release_choices(
    rows: Rows | IntArray,
    marginals: Sequence[Marginal],
    predictions: Sequence[FloatArray],
    offsets: FloatArray,
    n_choices: int,
    sigma: float,
    stream: SecretStream,
    event: Event,
    most: float = 1.0,
    *,
    forest: bool = False,
) -> tuple[int, ...]:
    """Choose marginals with large misfits, one after the other, and return their places.

    Of a `forest` only pairs are chosen that join columns which are not joined yet. There may be
    fewer choices than `n_choices`, if nothing is left.

    Privacy
    -------
    The caller has charged `event`: `n_choices` choices with noise `sigma` on every score and the
    sensitivity ``most * choice_sensitivity(marginals)``. What a choice rules out follows from it
    and from public facts.
    """
    offsets = on_lattice(offsets)
    scores = PREDICTED * (exact_misfits(rows, marginals, predictions) - offsets)
    columns = np.array([marginal.columns[:2] for marginal in marginals])
    joined = np.arange(int(columns.max()) + 1)
    rate = math.pi / (math.sqrt(6.0) * sigma * PREDICTED) if sigma > 0.0 else math.inf
    sensitivity = most * choice_sensitivity(marginals)
    mu = CHOICE_MU * sensitivity / sigma * math.sqrt(n_choices) if sigma > 0.0 else 1.0
    draw = _Draw(scores.astype(np.int64), rate, required_bits(1.0, mu))
    chosen: list[int] = []
    while draw.is_open.any() and len(chosen) < n_choices:
        place = draw.next(stream)
        chosen.append(place)
        draw.is_open[place] = False
        if forest:
            first, second = joined[columns[place]]
            joined[joined == second] = first
            draw.is_open &= joined[columns[:, 0]] != joined[columns[:, 1]]
    release = Release(
        "choices",
        chosen,
        {"marginals": tuple(marginals), "predictions": tuple(predictions), "offsets": offsets},
        sigma=float(sigma),
        sensitivity=sensitivity,
        event=event,
    )
    return tuple(released(release))


class _Draw:
    """Draws candidates with probability proportional to ``exp(rate * score)``, exactly."""

    def __init__(self, scores: npt.NDArray[np.int64], rate: float, bits: int) -> None:
        self.is_open = np.ones(len(scores), dtype=bool)
        self._scores = scores
        self._bits = bits
        self._shifts = np.zeros(len(scores), dtype=np.int64)
        self._mantissas: list[int] = []
        if math.isinf(rate):
            return
        # A weight is mantissa / 2^(bits + shift), with a mantissa of `bits` bits.
        with decimal.localcontext() as context:
            context.prec = math.ceil(bits * math.log10(2)) + 30
            log2, step, one = decimal.Decimal(2).ln(), decimal.Decimal(rate), 1 << bits
            for place, gap in enumerate((scores.max() - scores).tolist()):
                exponent = step * gap
                shift = int(exponent / log2)
                self._shifts[place] = shift
                self._mantissas.append(int((shift * log2 - exponent).exp() * one))

    def next(self, stream: SecretStream) -> int:
        """Draw one of the open candidates."""
        places = np.flatnonzero(self.is_open)
        if not self._mantissas:  # without noise
            return int(places[np.argmax(self._scores[places])])
        shifts = self._shifts[places] - self._shifts[places].min()
        near = shifts <= self._bits  # the weights of others are rounded down to 0
        places, shifts = places[near], shifts[near]
        weights = (
            self._mantissas[i] >> k for i, k in zip(places.tolist(), shifts.tolist(), strict=True)
        )
        sums = list(itertools.accumulate(weights))
        n_bits = sums[-1].bit_length()
        while (uniform := stream.random_bits(n_bits)) >= sums[-1]:
            pass
        return int(places[bisect_right(sums, uniform)])
