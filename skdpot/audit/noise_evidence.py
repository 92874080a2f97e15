r"""Whether the stated noise is in the releases: tests that the auditor makes with open coins.

Once the coins are open, the auditor computes each release without noise from the rows and the
public facts (parameters, bins). The rest is the noise: with normal noise of the stated σ, n numbers
have

.. math:: \sum_k r_k^2 / σ^2 \sim χ^2_n.

If the exact value is not known (secret batches, numbers whose order is lost, rounding), r is the
noise plus something independent of it, and the sum is noncentral :math:`χ^2_n`, stochastically
larger. The lower tail of :math:`χ^2_n` therefore always bounds the p-value: what the auditor does
not know costs power and never causes a false alarm. Discrete Gaussian noise on a lattice of at
least one σ has the same tail for sixteen or more numbers, up to a factor of 1.5 at a p-value of
10⁻⁴; smaller releases are tested together.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from scipy.stats import chi2, norm

from skdpot.privacy.gdp import gdp_epsilon

_FEWEST_TESTED = 16  # numbers of a test: with fewer, discrete noise has another tail
_SHARE = 0.01  # share of the false alarms of an audit that the tests of the noise may cause
_POWER = 0.95  # probability with which noise below `seen_below` is detected
_EVERY = "all together"  # name of the test of all releases


@dataclass(frozen=True, eq=False)
class NoiseCheck:
    """The residual of one release, compared with its stated noise."""

    name: str  # kind and number of the release
    n_numbers: int  # length of the residual
    energy: float  # sum of its squares, in units of the stated variance
    hidden: float = 0.0  # expected energy of what is not known; NaN if this is unknown too
    signals: np.ndarray | None = None  # squared distance that each pair moves it, in this unit

    @property
    def factor(self) -> float:
        """Ratio of the observed standard deviation to the stated one, or an upper bound of it."""
        return math.sqrt(self.energy / self.n_numbers)

    @property
    def is_large_enough(self) -> bool:
        """Whether there are enough numbers for a test."""
        return self.n_numbers >= _FEWEST_TESTED

    @property
    def p_value(self) -> float:
        """A bound on the probability of so small a residual under the stated noise."""
        return float(chi2.cdf(self.energy, self.n_numbers))

    def at_most(self, level: float) -> float:
        """Bound the ratio of true to stated noise from above, with an error of at most `level`."""
        return math.sqrt(self.energy / float(chi2.ppf(level, self.n_numbers)))

    def seen_below(self, level: float) -> float | None:
        """Return the share of the stated noise that a test at `level` detects as missing (95 %)."""
        room = float(chi2.ppf(level, self.n_numbers)) - self.hidden
        if not room > 0.0:
            return None
        # (c z + √hidden)², of which the mixed term is normal and c² χ² independent of its sign.
        square = float(chi2.ppf(_POWER, self.n_numbers))
        mixed = float(norm.ppf(_POWER)) * math.sqrt(self.hidden)
        return (math.sqrt(mixed**2 + square * room) - mixed) / square


@dataclass(frozen=True, eq=False, repr=False)
class NoiseEvidence:
    """The tests of the stated noise of all releases of an audited fit."""

    checks: tuple[NoiseCheck, ...]
    confidence: float
    unseen: tuple[str, ...] = ()

    @classmethod
    def of(
        cls, checks: Sequence[NoiseCheck], confidence: float, unseen: Sequence[str] = ()
    ) -> "NoiseEvidence":
        """Join the checks of small releases, and add one of all together."""
        tested = [check for check in checks if check.is_large_enough]
        small = [check for check in checks if not check.is_large_enough]
        groups = _joined_by_kind(small)
        tested += (group for group in groups if group.is_large_enough)
        missed = [group.name for group in groups if not group.is_large_enough]
        if len(checks) > 1:
            every = _joined(_EVERY, checks)
            tested += [every] if every.is_large_enough and len(tested) != 1 else []
        return cls(tuple(tested), confidence, (*unseen, *missed))

    @property
    def level(self) -> float:
        """The p-value below which a single check refutes."""
        return _SHARE * (1.0 - self.confidence) / max(len(self.checks), 1)

    @property
    def refuting(self) -> tuple[NoiseCheck, ...]:
        """The checks that refute the stated noise, those with the least noise first."""
        refuting = (check for check in self.checks if check.p_value < self.level)
        return tuple(sorted(refuting, key=lambda check: check.factor))

    @property
    def seen_below(self) -> float | None:
        """The share of the stated noise below which missing noise is found, except in `blind`."""
        shares = (share for share in self._seen().values() if share is not None)
        return min(shares, default=None)

    @property
    def blind(self) -> tuple[str, ...]:
        """Releases whose complete lack of noise this audit could not find."""
        hidden = (name for name, share in self._seen().items() if share is None)
        return tuple(dict.fromkeys((*self.unseen, *hidden)))

    def _seen(self) -> dict[str, float | None]:
        """Return the share of the stated noise that each test detects."""
        return {c.name: c.seen_below(self.level) for c in self.checks if c.name != _EVERY}

    def gaussian_epsilon_lower(self, delta: float) -> float | None:
        r"""Bound ε from below by how far the surest pair moves the releases, in observed noise.

        :math:`μ^2 = \sum_t \lVert s_t - s_t' \rVert^2 / \hat σ_t^2`, where :math:`\hat σ` is an
        upper limit of the noise. It holds if the noise is normal. A release depends on those before
        it, so the sum is that of the run that took place. A correct account bounds every term
        whatever came before, so it is refuted with no larger probability than stated.
        """
        moved = [(check, check.signals) for check in self.checks if check.signals is not None]
        if not moved or delta <= 0.0:
            return None
        if any(check.energy <= 0.0 and signals.any() for check, signals in moved):
            return math.inf
        noisy = [(signals, check.at_most(self.level)) for check, signals in moved if check.energy]
        mu = math.sqrt(np.max(sum((signals / noise**2 for signals, noise in noisy), np.zeros(1))))
        return gdp_epsilon(mu, delta) if mu > 0.0 else 0.0

    @property
    def power(self) -> str:
        """What these tests can refute, in a sentence."""
        if self.seen_below is None:
            return "Missing noise could only have been found by the guesses."
        share = math.floor(100 * self.seen_below) / 100
        seen = f"Less than {share:.2f} of the stated noise in one release would have been found"
        return f"{seen}, but not in: {', '.join(self.blind)}." if self.blind else f"{seen}."

    @property
    def verdict(self) -> str:
        """The result in words."""
        if not self.refuting:
            return self.power
        worst = self.refuting[0]
        return (
            f"REFUTED: {worst.name} has {worst.factor:.2g} of the stated noise "
            f"(p = {worst.p_value:.1g})."
        )

    def to_frame(self) -> pd.DataFrame:
        """Return a row per check."""
        columns = ["release", "numbers", "found / stated", "p-value", "seen below"]
        rows = [
            (check.name, check.n_numbers, check.factor, check.p_value, check.seen_below(self.level))
            for check in self.checks
        ]
        return pd.DataFrame(rows, columns=columns)

    def __repr__(self) -> str:
        return f"NoiseEvidence({len(self.checks)} checks. {self.verdict})"


def _joined_by_kind(checks: Sequence[NoiseCheck]) -> list[NoiseCheck]:
    """Join the checks of small releases of one kind, whose names differ by a number only."""
    kinds: dict[str, list[NoiseCheck]] = {}
    for check in checks:
        kinds.setdefault(check.name.rstrip("0123456789 "), []).append(check)
    return [_joined(f"all {kind}", of_kind) for kind, of_kind in kinds.items()]


def _joined(name: str, checks: Sequence[NoiseCheck]) -> NoiseCheck:
    """Return one check of several releases, by the sum of their energies."""
    return NoiseCheck(
        name,
        n_numbers=sum(check.n_numbers for check in checks),
        energy=sum(check.energy for check in checks),
        hidden=sum(check.hidden for check in checks),
    )
