"""The canaries and the score that fit each estimator best: who audits what.

Each estimator's noisy releases are public in the sense of its ε, so that the attacker reads them
rather than the model: the table of a sketch, noisy projections, noisy gradients, noisy counts.
"""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from skdpot.audit.audited_fit import AuditedFit, NoKnownAttackError, Score
from skdpot.audit.canaries import CanaryPairs, CanaryRequest
from skdpot.audit.evidence.autoencoder import add_autoencoder, autoencoder_canaries
from skdpot.audit.evidence.fair import add_fair, fair_canaries
from skdpot.audit.evidence.generator import add_generator
from skdpot.audit.evidence.histograms import add_scaler, scaler_canaries
from skdpot.audit.evidence.linear import EvidenceSum
from skdpot.audit.evidence.rows import add_rows
from skdpot.audit.evidence.sketch import (
    add_contribution,
    add_sketch,
    contribution_canaries,
    refuse_without_claim,
    sketch_canaries,
)
from skdpot.audit.evidence.tables import add_tables, table_canaries
from skdpot.audit.evidence.trajectories import (
    add_langevin,
    add_times,
    trajectory_canaries,
)

__all__ = ["NoKnownAttackError", "default_canaries", "default_score", "evidence_of"]


CanaryMaker = Callable[[CanaryRequest], CanaryPairs]
Attack = Callable[[EvidenceSum, AuditedFit], None]

# Name of the class, and its parameter that chooses the mechanism with the value it needs.
_ATTACKS: dict[tuple[str, str], tuple[CanaryMaker, Attack]] = {
    ("SlicedSketch", ""): (sketch_canaries, add_sketch),
    ("DPSlicedFlowSampler", "sketch"): (sketch_canaries, add_sketch),
    ("DPSlicedGenerator", "sketch"): (sketch_canaries, add_sketch),
    ("PrivateWassersteinDistance", "sliced"): (sketch_canaries, add_sketch),
    ("DPSlicedFlowSampler", "resample"): (sketch_canaries, add_rows),
    ("DPSlicedFlowSampler", "presample"): (sketch_canaries, add_rows),
    ("DPSlicedGenerator", "smoothing"): (sketch_canaries, add_rows),
    ("PrivateTrajectorySampler", "sketch"): (trajectory_canaries, add_times),
    ("PrivateTrajectorySampler", "mfld"): (trajectory_canaries, add_langevin),
    ("PrivateSWAutoencoder", ""): (autoencoder_canaries, add_autoencoder),
    ("DPSlicedGenerator", "gradient"): (sketch_canaries, add_generator),
    **{
        (name, gradient): (fair_canaries, add_fair)
        for name in ("FairPrivateClassifier", "FairPrivateRegressor")
        for gradient in ("sketch", "ranks")
    },
    ("DPTableSynthesizer", ""): (table_canaries, add_tables),
    ("PrivateScaler", ""): (scaler_canaries, add_scaler),
    ("ClientContribution", ""): (contribution_canaries, add_contribution),
    ("PrivateWassersteinDistance", "triangle"): (refuse_without_claim, add_sketch),
    ("PrivateWassersteinDistance", "fedwad"): (refuse_without_claim, add_sketch),
}
_CHOICES = ("mechanism", "protocol", "gradient")


def default_canaries(
    estimator: Any,
    n_pairs: int,
    X: np.ndarray,
    y: np.ndarray | None = None,
    *,
    fit_params: Mapping[str, np.ndarray] | None = None,
    rng: np.random.Generator,
) -> CanaryPairs:
    """Make the canaries that show most of an estimator.

    Parameters
    ----------
    estimator : estimator
        As it is to be audited.
    n_pairs : int
        How many.
    X : ndarray of shape (n_samples, n_features)
        Public rows beside them. Where the estimator finds its bounds itself, canaries lie on
        the edge of these rows.
    y : ndarray of shape (n_samples,), optional
        Their labels.
    fit_params : mapping of str to ndarray, optional
        Further public facts of the rows.
    rng : numpy.random.Generator
        Draws the canaries.

    Returns
    -------
    CanaryPairs

    Raises
    ------
    NoKnownAttackError
        A ValueError: no attack on this estimator is known.
    """
    maker, _ = _attack(estimator)
    return maker(
        CanaryRequest(
            estimator=estimator, n_pairs=n_pairs, X=X, y=y, fit_params=fit_params or {}, rng=rng
        )
    )


def default_score(fitted: Any) -> Score:
    """Return the white-box score of a fitted estimator.

    Parameters
    ----------
    fitted : estimator
        A fitted estimator of this package.

    Returns
    -------
    callable
        For `one_run_audit` and `gaussian_audit`.

    Raises
    ------
    NoKnownAttackError
        A ValueError: no attack on this estimator is known.
    """
    attack = _attack(fitted)[1]

    def score(audited: AuditedFit) -> np.ndarray:
        evidence = EvidenceSum(len(audited.pairs))
        attack(evidence, audited)
        return evidence.scores()

    return score


def evidence_of(audited: AuditedFit, heads: np.ndarray) -> EvidenceSum:
    """Gather what the releases of an audited fit say of the coins, and of their noise."""
    evidence = EvidenceSum(len(audited.pairs), heads)
    _attack(audited.fitted)[1](evidence, audited)
    return evidence


def _name_of(estimator: Any, choice: Any) -> str:
    """Return the name that is short for a mechanism."""
    if isinstance(choice, str):
        return choice
    names = {kind: name for name, kind in estimator._mechanisms.items()}
    return names[type(choice)]


def _attack(estimator: Any) -> tuple[CanaryMaker, Attack]:
    """Look up the attack of an estimator and its mechanism."""
    choices = [getattr(estimator, choice) for choice in _CHOICES if hasattr(estimator, choice)]
    mechanism = _name_of(estimator, choices[0]) if choices else ""
    for base in type(estimator).__mro__:
        if (base.__name__, mechanism) in _ATTACKS:
            return _ATTACKS[base.__name__, mechanism]
    named = f"{type(estimator).__name__}({mechanism!r})" if choices else type(estimator).__name__
    raise NoKnownAttackError(
        f"No attack on {named} is known: give canaries= (CanaryPairs) and score= yourself."
    )
