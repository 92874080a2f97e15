"""The canaries and the score that fit each estimator best: who audits what.

Each estimator's noisy releases are public in the sense of its ε, so that the attacker reads them
rather than the model: the table of a sketch, noisy projections, noisy gradients, noisy counts.
"""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from skdpot.audit.audited_fit import NoKnownAttackError, Score
from skdpot.audit.canaries import CanaryPairs, CanaryRequest
from skdpot.audit.evidence.autoencoder import autoencoder_canaries, autoencoder_score
from skdpot.audit.evidence.distance import (
    contribution_canaries,
    contribution_score,
    refuse_without_claim,
)
from skdpot.audit.evidence.fair import fair_canaries, fair_score
from skdpot.audit.evidence.generator import gradient_score
from skdpot.audit.evidence.histograms import scaler_canaries, scaler_score
from skdpot.audit.evidence.rows import row_score
from skdpot.audit.evidence.sketch import sketch_canaries, sketch_score
from skdpot.audit.evidence.tables import table_canaries, table_score
from skdpot.audit.evidence.trajectories import (
    langevin_score,
    trajectory_canaries,
    trajectory_sketch_score,
)

__all__ = ["NoKnownAttackError", "default_canaries", "default_score"]


CanaryMaker = Callable[[CanaryRequest], CanaryPairs]

# Name of the class, and its parameter that chooses the mechanism with the value it needs.
_ATTACKS: dict[tuple[str, str], tuple[CanaryMaker, Score]] = {
    ("SlicedSketch", ""): (sketch_canaries, sketch_score),
    ("DPSlicedFlowSampler", "sketch"): (sketch_canaries, sketch_score),
    ("DPSlicedGenerator", "sketch"): (sketch_canaries, sketch_score),
    ("PrivateWassersteinDistance", "sliced"): (sketch_canaries, sketch_score),
    ("DPSlicedFlowSampler", "resample"): (sketch_canaries, row_score),
    ("DPSlicedFlowSampler", "presample"): (sketch_canaries, row_score),
    ("DPSlicedGenerator", "smoothing"): (sketch_canaries, row_score),
    ("PrivateTrajectorySampler", "sketch"): (trajectory_canaries, trajectory_sketch_score),
    ("PrivateTrajectorySampler", "mfld"): (trajectory_canaries, langevin_score),
    ("PrivateSWAutoencoder", ""): (autoencoder_canaries, autoencoder_score),
    ("DPSlicedGenerator", "gradient"): (sketch_canaries, gradient_score),
    **{
        (name, gradient): (fair_canaries, fair_score)
        for name in ("FairPrivateClassifier", "FairPrivateRegressor")
        for gradient in ("sketch", "ranks")
    },
    ("DPTableSynthesizer", ""): (table_canaries, table_score),
    ("PrivateScaler", ""): (scaler_canaries, scaler_score),
    ("ClientContribution", ""): (contribution_canaries, contribution_score),
    ("PrivateWassersteinDistance", "triangle"): (refuse_without_claim, sketch_score),
    ("PrivateWassersteinDistance", "fedwad"): (refuse_without_claim, sketch_score),
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
    return _attack(fitted)[1]


def _attack(estimator: Any) -> tuple[CanaryMaker, Score]:
    """Look up the attack of an estimator and its mechanism."""
    choices = [getattr(estimator, choice) for choice in _CHOICES if hasattr(estimator, choice)]
    mechanism = str(choices[0]) if choices else ""
    for base in type(estimator).__mro__:
        if (base.__name__, mechanism) in _ATTACKS:
            return _ATTACKS[base.__name__, mechanism]
    named = f"{type(estimator).__name__}({mechanism!r})" if choices else type(estimator).__name__
    raise NoKnownAttackError(
        f"No attack on {named} is known: give canaries= (CanaryPairs) and score= yourself."
    )
