r"""Choice of the marginals with the largest misfits, by the exponential mechanism.

The misfits of m marginals, released with Gaussian noise, need noise of scale :math:`2 \sqrt m`
over mu. The exponential mechanism releases only which marginals have the largest misfits: k choices
cost as much as k numbers, and the noise that a large misfit has to exceed grows with the logarithm
of m.

*Exact draws.* Scores are misfits less public offsets, both multiples of 1/16, and rates are floats,
so :math:`e^{-\lambda (\max_j q_j - q_i)}` is known to any precision. The weight of a candidate is
this number, rounded down to a multiple of :math:`2^{-b}`, and a candidate is drawn by a uniform
integer below the sum of all weights: no floating-point number depends on the choice. For m
candidates the probabilities are off by less than :math:`m 2^{2-b}` in total variation, and those of
k choices by k times as much. `required_bits` makes :math:`2^{35} 2^{1-b}` negligible beside the
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

from skdpot._utils.arrays import FloatArray
from skdpot._utils.streams import SecretStream
from skdpot.privacy.choices import CHOICE_MU
from skdpot.privacy.events import Event
from skdpot.privacy.noise import required_bits
from skdpot.release.gate import pass_gate
from skdpot.release.releases import Release
from skdpot.tables.contingency import PREDICTED, CountableRows, Marginal, exact_misfits, on_lattice
from skdpot.tables.marginal_release import largest_change

_BLOCK = 2**10  # candidates whose weights have a sum of their own


def choice_sensitivity(marginals: Sequence[Marginal]) -> float:
    """Return the largest change of the difference of two scores, replace-one.

    A misfit changes by at most `largest_change`, up or down, and offsets are public.
    """
    return 2.0 * max(map(largest_change, marginals))


def release_choices(
    rows: CountableRows,
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

    For a `forest`, a pair is a candidate only while it joins two trees. There are fewer choices
    than `n_choices` if no candidate is left.

    Privacy
    -------
    The caller has charged `event`: `n_choices` choices with noise `sigma` on every score and the
    sensitivity ``most * choice_sensitivity(marginals)``. The candidates that a choice excludes
    follow from it and from public facts.
    """
    offsets = on_lattice(offsets)  # public
    scores = PREDICTED * (exact_misfits(rows, marginals, predictions) - offsets)
    columns = np.array([marginal.columns[:2] for marginal in marginals])
    tree_of = np.arange(int(columns.max()) + 1)
    rate = math.pi / (math.sqrt(6.0) * sigma * PREDICTED) if sigma > 0.0 else math.inf
    sensitivity = most * choice_sensitivity(marginals)
    mu = CHOICE_MU * sensitivity / sigma * math.sqrt(n_choices) if sigma > 0.0 else 1.0
    draw = _ExponentialDraw(scores.astype(np.int64), rate, required_bits(1.0, mu))
    chosen: list[int] = []
    while draw.is_open.any() and len(chosen) < n_choices:
        place = draw.next(stream)
        chosen.append(place)
        draw.is_open[place] = False
        if forest:
            first, second = tree_of[columns[place]]
            tree_of[tree_of == second] = first
            draw.is_open &= tree_of[columns[:, 0]] != tree_of[columns[:, 1]]
    release = Release(
        "choices",
        chosen,
        {"marginals": tuple(marginals), "predictions": tuple(predictions), "offsets": offsets},
        sigma=float(sigma),
        sensitivity=sensitivity,
        event=event,
    )
    return tuple(pass_gate(release))


def _relative_weight(
    exponent: decimal.Decimal, shift: int, log2: decimal.Decimal
) -> decimal.Decimal:
    """Return ``exp(-exponent) * 2**shift`` in the precision of the context, in (1/2, 1]."""
    return (shift * log2 - exponent).exp()


class _ExponentialDraw:
    """Draws candidates with probability proportional to ``exp(rate * score)``, exactly."""

    def __init__(self, scores: npt.NDArray[np.int64], rate: float, bits: int) -> None:
        self.is_open = np.ones(len(scores), dtype=bool)
        self._scores = scores
        self._bits = bits
        self._least = -1  # shift of the largest weight, to which all are relative
        self._weights: list[int] = []
        self._blocks: list[int] = []  # sums of weights per block
        self._counted = self.is_open
        if math.isinf(rate):
            self._exact: list[tuple[int, int]] = []
            return
        # A weight is mantissa / 2^(bits + shift), with a mantissa of `bits` bits.
        gaps, self._kinds = np.unique(scores.max() - scores, return_inverse=True)
        with decimal.localcontext() as context:
            context.prec = math.ceil(bits * math.log10(2)) + 30
            log2, step, one = decimal.Decimal(2).ln(), decimal.Decimal(rate), 1 << bits
            exponents = [step * gap for gap in gaps.tolist()]
            shifts = [int(exponent / log2) for exponent in exponents]
            self._exact = [
                (int(_relative_weight(exponent, shift, log2) * one), shift)
                for exponent, shift in zip(exponents, shifts, strict=True)
            ]
        self._shifts = np.array(shifts)[self._kinds]

    def next(self, stream: SecretStream) -> int:
        """Draw one of the open candidates."""
        if not self._exact:  # there is no noise
            places = np.flatnonzero(self.is_open)
            return int(places[np.argmax(self._scores[places])])
        self._weigh()
        sums = list(itertools.accumulate(self._blocks))
        n_bits = sums[-1].bit_length()
        while (uniform := stream.random_bits(n_bits)) >= sums[-1]:
            pass
        block = bisect_right(sums, uniform)
        start = block * _BLOCK
        within = itertools.accumulate(self._weights[start : start + _BLOCK])
        return start + bisect_right(list(within), uniform - sums[block] + self._blocks[block])

    def _weigh(self) -> None:
        """Compute the weights of open candidates and their sums by blocks."""
        least = int(self._shifts[self.is_open].min())
        if least == self._least:
            for place in np.flatnonzero(self._counted & ~self.is_open).tolist():
                self._blocks[place // _BLOCK] -= self._weights[place]
                self._weights[place] = 0
        else:
            # Weights of candidates far behind are rounded down to 0.
            shifted = [
                mantissa >> (shift - least) if 0 <= shift - least <= self._bits else 0
                for mantissa, shift in self._exact
            ]
            kinds = np.where(self.is_open, self._kinds, len(shifted)).tolist()
            self._weights = [*map([*shifted, 0].__getitem__, kinds)]
            starts = range(0, len(self._weights), _BLOCK)
            self._blocks = [sum(self._weights[k : k + _BLOCK]) for k in starts]
            self._least = least
        self._counted = self.is_open.copy()
