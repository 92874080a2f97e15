"""The candidates of an audit as one crowd of records: their cells, their ranks, their rates."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from skdpot.audit.audited_fit import AuditedFit
from skdpot.audit.evidence.contributions import ByParameter, Contributions
from skdpot.audit.evidence.linear import EvidenceSum
from skdpot.nets.training_plan import TrainingPlan

__all__ = ["Crowd", "crowd_of_audit", "public_facts_of_pairs"]

_FEWEST = 16  # numbers beside those that batches move, from which noise is measured
_RANK = 1e-9  # of the largest eigenvalue: what counts as moved


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

    def present(self, heads: np.ndarray) -> tuple[np.ndarray, "Crowd"]:
        """Return the places of the records that are in the data, and them as a crowd."""
        n_pairs = len(heads)
        n_known = len(self.codes) - 2 * n_pairs
        chosen = n_known + np.arange(n_pairs) + np.where(heads, 0, n_pairs)
        index = np.concatenate([np.arange(n_known), chosen])
        codes = self.codes[index]
        order = np.argsort(codes, kind="stable")
        return index, Crowd(
            codes=codes, shares=np.ones(len(index)), order=order, places=np.argsort(order)
        )

    @property
    def sizes(self) -> tuple[int, ...]:
        """Records of each cell in that batch: twice as many as in the data, if all are expected."""
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
        evidence: EvidenceSum,
        own: Contributions,
        gradient: ByParameter,
        facts: Mapping[str, Any],
        plan: TrainingPlan,
        ranked: Callable[["Crowd", np.ndarray], Contributions] | None = None,
    ) -> None:
        """Add what a noisy gradient of a batch says, given what records add to its sum.

        Parameters
        ----------
        evidence : EvidenceSum
            Where to.
        own : Contributions
            Of each record, to the sum over a batch.
        gradient : mapping of parameter to tensor
            The release: the noisy sum over the size of the batch.
        facts : mapping
            The recorded ones, of which the scale of the noise is read.
        plan : TrainingPlan
            How batches are drawn.
        ranked : callable, optional
            Returns what the records that are in the data add, of which one's term depends on the
            others; by default no term does.
        """
        gram, rates = own.gram(), self.rates(plan)
        sigma = plan.batch_size * facts["noise_scale"]
        inner = plan.batch_size * own.inner(gradient) - gram @ (rates * self.shares)
        evidence.add_batch(gram, inner, sigma, rates)
        if evidence.heads is None or sigma == 0.0:
            return
        index, present = self.present(evidence.heads)
        exact = own.take(index) if ranked is None else ranked(present, index)
        signals = None
        if ranked is None and np.all(rates == 1.0):
            first, second = np.arange(len(gram) - 2 * evidence.n_pairs, len(gram)).reshape(2, -1)
            signals = gram[first, first] + gram[second, second] - 2.0 * gram[first, second]
            signals = signals / sigma**2
        left = _residual(exact, gradient, present.rates(plan), plan.batch_size, ranked is None)
        evidence.check("gradient", *left[:2], sigma, left[2], signals)


def _residual(
    own: Contributions, gradient: ByParameter, rates: np.ndarray, size: int, in_span: bool
) -> tuple[float, int, float]:
    """Return energy and length of what the records do not explain, and what hides the noise.

    What batches move lies in the span of what their records add, `in_span` of others. It is left
    out if enough numbers remain.
    """
    gram, inner = own.gram(), size * own.inner(gradient)
    energy = size**2 * sum(float(value.square().sum()) for value in gradient.values())
    n_numbers = sum(value.numel() for value in gradient.values())
    if not np.all(rates == 1.0) and in_span:
        eigenvalues, vectors = np.linalg.eigh(gram)
        moved = eigenvalues > _RANK * max(eigenvalues[-1], 1e-300)
        if n_numbers - int(moved.sum()) >= _FEWEST:
            explained = (vectors[:, moved].T @ inner) ** 2 / eigenvalues[moved]
            return energy - float(explained.sum()), n_numbers - int(moved.sum()), 0.0
    energy += float(rates @ gram @ rates - 2.0 * rates @ inner)
    hidden = float(np.sum(rates * (1.0 - rates) * np.diag(gram)))
    return energy, n_numbers, hidden if in_span or hidden == 0.0 else float("nan")


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
