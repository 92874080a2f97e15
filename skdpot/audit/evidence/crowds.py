"""The candidates of an audit as one crowd of records: their cells, their ranks, their rates."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from skdpot.audit.audited_fit import AuditedFit
from skdpot.audit.evidence.batches import BatchEvidence
from skdpot.audit.evidence.contributions import ByParameter, Contributions
from skdpot.nets.training_plan import TrainingPlan

__all__ = ["Crowd", "crowd_of_audit", "public_facts_of_pairs"]


@dataclass(frozen=True, eq=False, kw_only=True)
class Crowd:
    """Known rows, the first and the second records of all pairs, in this order.

    Parameters
    ----------
    codes : ndarray of shape (n_records,), intp
        Public cell of each, such as its group.
    shares : ndarray of shape (n_records,)
        1 for known rows and 1/2 for candidates: how many of it are expected in the data.
    order : ndarray of shape (2 * n_samples,), intp
        Positions of a batch in which each record is twice as often as it is expected, cell by
        cell.
    places : ndarray of shape (n_records,), intp
        Where each record is in that batch.
    """

    codes: np.ndarray
    shares: np.ndarray
    order: np.ndarray
    places: np.ndarray

    @property
    def sizes(self) -> tuple[int, ...]:
        """Records of each cell in that batch: twice as many as in the data."""
        return tuple(np.bincount(self.codes[self.order]).tolist())

    def rates(self, plan: TrainingPlan) -> np.ndarray:
        """Return the probability that each record, if it is in the data, is in a batch."""
        if plan.sampling == "poisson" or len(plan.group_sizes) == 1:
            return np.full(len(self.codes), plan.sampling_rate)
        of_cells = np.asarray(plan.batch_sizes) / np.asarray(plan.group_sizes)
        rates: np.ndarray = of_cells[self.codes]
        return rates

    def add_step(
        self,
        evidence: BatchEvidence,
        own: Contributions,
        gradient: ByParameter,
        facts: Mapping[str, Any],
        plan: TrainingPlan,
    ) -> None:
        """Add what a noisy gradient of a batch says, given what records add to its sum.

        Parameters
        ----------
        evidence : BatchEvidence
            Where to.
        own : Contributions
            Of each record, to the sum over a batch.
        gradient : mapping of parameter to tensor
            The release: the noisy sum over the size of the batch.
        facts : mapping
            The recorded ones, of which the scale of the noise is read.
        plan : TrainingPlan
            How batches are drawn.
        """
        gram, rates = own.gram(), self.rates(plan)
        inner = plan.batch_size * own.inner(gradient) - gram @ (rates * self.shares)
        evidence.add_batch(gram, inner, plan.batch_size * facts["noise_scale"], rates)


def crowd_of_audit(audited: AuditedFit, cells: np.ndarray | None = None) -> Crowd:
    """Gather the candidates.

    Parameters
    ----------
    audited : AuditedFit
        Rows and pairs.
    cells : ndarray of shape (n_samples + n_pairs,), optional
        Public cell of each row of the fit, of any type; by default there is one.
    """
    n_known, n_pairs = len(audited.X), len(audited.pairs)
    of_fit = np.zeros(n_known + n_pairs, dtype=np.intp)
    if cells is not None:
        of_fit = np.unique(np.asarray(cells), return_inverse=True)[1].astype(np.intp)
    codes = np.concatenate([of_fit, of_fit[n_known:]])
    shares = np.concatenate([np.ones(n_known), np.full(2 * n_pairs, 0.5)])
    twice = np.concatenate([np.arange(n_known), np.arange(len(codes))])
    order = twice[np.argsort(codes[twice], kind="stable")]
    places = np.empty(len(codes), dtype=np.intp)
    places[order] = np.arange(len(order))
    return Crowd(codes=codes, shares=shares, order=order, places=places)


def public_facts_of_pairs(
    n_pairs: int, fit_params: Mapping[str, np.ndarray], rng: np.random.Generator
) -> dict[str, np.ndarray]:
    """Draw the public facts of slots, such as their groups, from those of the known rows."""
    return {
        name: rng.choice(np.unique(np.asarray(values)), size=n_pairs)
        for name, values in fit_params.items()
    }
