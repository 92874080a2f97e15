r"""What a synthesizer will release, and the noise of each part, fixed before it looks.

Five releases, of which later ones depend on earlier ones: marginals of single columns; how far
independent columns are off, for each pair; the pairs of a tree; how far that tree is off; and
the pairs that it gets worst. Each is Gaussian with a fixed share of the squared mu, whatever is
chosen on the way, and shares add up under adaptive composition (Dong, Roth and Su, "Gaussian
differential privacy", 2022, Corollary 3.3 with Theorem 3.2).
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from skdpot.exceptions import CalibrationError
from skdpot.preprocessing.schema_plan import SchemaPlan, plan_schema
from skdpot.preprocessing.table_schema import TableSchema
from skdpot.privacy.calibration import PrivacyTarget, calibrate
from skdpot.privacy.events import ComposedEvent, Event, GaussianEvent
from skdpot.privacy.lattice_sampler import MAX_TABLE_S, required_bits
from skdpot.slicing.marginal_release import MARGINAL_SENSITIVITY, misfit_sensitivity
from skdpot.slicing.marginals import FloatArray

__all__ = ["TablePlan", "plan_tables", "shares_of"]

# Shares of the squared mu, found on Adult (doc/tables.rst); 3 % more or less changes little.
_SHARES = {
    "columns": 0.10,
    "independence": 0.05,
    "tree": 0.40,
    "misfit": 0.05,
    "pairs": 0.40,
}
_LABELS = {
    "columns": "Counts of each column",
    "independence": "How far pairs of columns are from independent",
    "tree": "Counts of pairs that form a tree",
    "misfit": "How far other pairs are from what the tree says",
    "pairs": "Counts of the pairs that it gets worst",
}
_SCHEMA_SHARE = 0.2  # for bounds and categories, when all columns lack them
_MOST_GROUPS = 8
_SEEN_CELL = 4.0  # standard deviations of noise
_LATTICE = 1 / 16  # of sigma, the coarsest that noise is drawn on
# Times the number of columns. A release of any marginal may have a few hundred times this noise,
# on a lattice of 1/16, and the sampler goes to 2^40 steps.
_LARGEST_SIGMA = 2.0**26


@dataclass(frozen=True)
class TablePlan:
    """The releases of one fit.

    Parameters
    ----------
    n_samples : int
        Public number of rows.
    sigma : float
        Noise for a statistic of sensitivity 1 that had the whole squared mu; 0 without noise.
    shares : dict of str to float
        Share of the squared mu of each release.
    schema : SchemaPlan
        What is estimated of the schema first.
    event : Event
        Everything together.
    """

    n_samples: int
    sigma: float
    shares: dict[str, float]
    schema: SchemaPlan
    event: Event

    def marginal_sigmas(self, release: str, weights: FloatArray) -> FloatArray:
        """Return the noise of several marginals that share one release by `weights`."""
        share = self.shares[release] * weights / weights.sum()
        sigmas: FloatArray = self.sigma * MARGINAL_SENSITIVITY / np.sqrt(share)
        return sigmas

    def n_groups(self, n_columns: int) -> int:
        """Return how many groups of a column pairs can tell apart in noise, two to eight."""
        if self.sigma == 0.0 or n_columns < 2:
            return _MOST_GROUPS
        noise = self.marginal_sigmas("tree", np.ones(n_columns - 1))[0]
        return int(np.clip(math.sqrt(self.n_samples / (_SEEN_CELL * noise)), 2, _MOST_GROUPS))

    def misfit_sigma(self, release: str, n_marginals: int) -> float:
        """Return the noise of the misfits of several marginals."""
        return self.sigma * misfit_sensitivity(n_marginals) / math.sqrt(self.shares[release])


def plan_tables(target: PrivacyTarget, schema: TableSchema, n_samples: int) -> TablePlan:
    """Share a target among the releases.

    Parameters
    ----------
    target : PrivacyTarget
        What the fit may cost.
    schema : TableSchema
        With data types, as `TableSchema.bind` returns it; what is None in it is estimated first.
    n_samples : int
        Public number of rows.

    Returns
    -------
    TablePlan

    Raises
    ------
    CalibrationError
        If no noise meets the target, or none that can be drawn does.
    """
    unknown = sum(not column.is_resolved for column in schema)
    mu = target.mu_cap * math.sqrt(_SCHEMA_SHARE * unknown / len(schema)) if unknown else math.inf
    first = plan_schema(schema, n_samples, mu=mu, delta=target.tail_delta)
    shares = shares_of(len(schema))
    before = () if first.event is None else (first.event,)

    def event(sigma: float) -> Event:
        releases = (
            GaussianEvent(
                sigma=sigma,
                sensitivity=math.sqrt(share),
                lattice=sigma * _LATTICE,
                label=_LABELS[name],
            )
            for name, share in shares.items()
        )
        return ComposedEvent(events=(*before, *releases))

    found = calibrate(target, event)
    sigma = found.phases[-1].sigma if found.is_private else 0.0
    if sigma > 0.0:
        _check_drawable(sigma, shares, len(schema))
    return TablePlan(n_samples, sigma, shares, first, found)


def shares_of(n_columns: int) -> dict[str, float]:
    """Return the releases of a table in their order, each with its share of the squared mu."""
    return dict(_SHARES) if n_columns > 1 else {"columns": 1.0}


def _check_drawable(sigma: float, shares: Mapping[str, float], n_columns: int) -> None:
    """Refuse what the sampler of the noise would refuse, but before any charge."""
    required_bits(MAX_TABLE_S, math.sqrt(max(shares.values())) / sigma)
    if sigma * n_columns > _LARGEST_SIGMA:
        raise CalibrationError(
            f"Noise of sigma = {sigma:.3g} for a table of {n_columns} columns is too wide to be "
            "drawn, and leaves nothing of the data. Raise epsilon or delta."
        )
