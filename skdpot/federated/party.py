"""A party: rows that stay where they are, and the messages that it agrees to send."""

from collections.abc import Iterable
from typing import Any, NoReturn

import numpy as np
import pandas as pd
from sklearn.base import BaseEstimator
from sklearn.utils import check_random_state

from skdpot._utils.validation import validate_rows
from skdpot.federated.measures import DiscreteMeasure, labelled_measure
from skdpot.federated.messages import SketchMessage, SketchRequest, check_feature_names, is_writable
from skdpot.federated.plain_answers import PlainAnswers
from skdpot.federated.plain_messages import check_type
from skdpot.federated.publishing import rehearsed, release_seed
from skdpot.federated.vault import Terms, Vault, lock_away, vault_of
from skdpot.privacy.budget import PrivacyBudget
from skdpot.privacy.calibration import privacy_target
from skdpot.privacy.spent import PrivacySpent
from skdpot.slicing.sketch import SlicedSketch

__all__ = ["PROTOCOLS", "Party"]

PROTOCOLS = ("sliced", "triangle", "fedwad", "values")


class PartyRows(BaseEstimator):
    """Receives number and names of features when rows are validated."""


class Party(PlainAnswers):
    """A data holder who takes part in protocols without handing over the data.

    A party answers requests with messages, and its owner says which protocols it takes part
    in. What it sends depends on its own rows and on the request, never on another party. No
    attribute, repr, pickle, copy or error text holds the rows.

    Parameters
    ----------
    name : str
        What others call the party.
    X : array-like of shape (n_samples, n_features)
        Private rows, at least two; copied. Names of its columns are sent along, and must be
        text that a message can hold.
    y : array-like of shape (n_samples,), optional
        Private classes of the rows. With them "triangle", "fedwad" and "values" compare the
        rows together with mean and covariance of their class
        (`skdpot.federated.measures.labelled_measure`); "sliced" does not use them.
    masses : array-like of shape (n_samples,), optional
        Weights of the rows; equal by default. Not for "sliced", where every row counts once.
    allows : sequence of {"sliced", "triangle", "fedwad", "values"}, default=("sliced",)
        Protocols that the party agreed to. Only "sliced" is private; with "triangle" or
        "fedwad" the server can compute every row. Others are refused before the rows are touched.
    epsilon, delta : float, default=1.0, 1e-5
        Privacy parameters of each sketch that the party publishes. No request can change them.
    budget : PrivacyBudget, optional
        What sketches are charged to. Protocols that are not private are charged to it too, so
        that one with a finite epsilon refuses them. Without a budget the party publishes one
        sketch and refuses other requests.
    covariance : {"full", "diagonal"}, default="full"
        How classes are compared, see `labelled_measure`.
    solver : {"auto", "exact", "entropic"}, default="auto"
        How plans are computed, see `skdpot.federated.plans.optimal_plan`.
    random_state : int, RandomState or None, default=None
        Makes the noise of sketches reproducible. For tests only: whoever knows it can
        remove the noise. The noise also depends on the name of the party and on the request.

    Raises
    ------
    ValueError, TypeError
        If an argument is not usable. No value of X, y or masses is quoted.

    Notes
    -----
    Python has no walls inside a process. A party keeps honest code from showing rows by
    mistake; parties who do not trust each other run in processes of their own.

    Privacy
    -------
    The name and the number of rows and of features and their names are public, also in protocols
    that the party does not allow. The docstring of each message in `skdpot.federated.messages`
    says what it reveals.

    Examples
    --------
    >>> import numpy as np
    >>> from skdpot.federated.messages import SketchRequest
    >>> from skdpot.federated.party import Party
    >>> X = np.random.default_rng(0).uniform(-1, 1, size=(500, 3))
    >>> hospital = Party("hospital", X, epsilon=1.0)
    >>> request = SketchRequest.draw(
    ...     3, n_slices=6, n_bins=16, bounds=(-1, 1), rng=np.random.default_rng(1)
    ... )
    >>> hospital.publish_sketch(request)
    <SketchMessage (1 x 6 x 16 table, epsilon=1, delta=1e-05, ... bytes)>
    >>> hospital
    Party('hospital', n_samples=500, n_features=3, allows=('sliced',))
    """

    __slots__ = ("__weakref__",)

    def __init__(
        self,
        name: str,
        X: Any,
        y: Any = None,
        *,
        masses: Any = None,
        allows: Iterable[str] = ("sliced",),
        epsilon: float = 1.0,
        delta: float = 1e-5,
        budget: PrivacyBudget | None = None,
        covariance: str = "full",
        solver: str = "auto",
        random_state: Any = None,
    ) -> None:
        terms = _checked_terms(
            allows,
            epsilon=epsilon,
            delta=delta,
            budget=budget,
            solver=solver,
            random_state=random_state,
        )
        columns = PartyRows()
        rows = np.array(validate_rows(columns, X, reset=True, min_samples=2))
        names = getattr(columns, "feature_names_in_", None)
        if names is not None:
            check_feature_names(names)
        vault = Vault(
            name=_checked_name(name),
            rows=rows,
            feature_names=None if names is None else tuple(names),
            terms=terms,
            given_measure=_measure(rows, y, masses, covariance),
            weighted=masses is not None,
        )
        lock_away(self, vault)

    @property
    def name(self) -> str:
        """What others call the party."""
        return vault_of(self).name

    @property
    def n_samples(self) -> int:
        """Number of rows."""
        return len(vault_of(self).rows)

    @property
    def n_features(self) -> int:
        """Number of columns of the rows."""
        return int(vault_of(self).rows.shape[1])

    @property
    def feature_names(self) -> tuple[str, ...] | None:
        """Names of the columns, if they have some."""
        return vault_of(self).feature_names

    @property
    def n_dimensions(self) -> int:
        """Dimension of the measure that "triangle" and "fedwad" compare; more with classes."""
        return vault_of(self).n_dimensions

    @property
    def allows(self) -> tuple[str, ...]:
        """Protocols that the party agreed to."""
        return vault_of(self).terms.allows

    @property
    def epsilon(self) -> float:
        """Privacy parameter of each of its sketches."""
        return vault_of(self).terms.epsilon

    @property
    def delta(self) -> float:
        """Privacy parameter of each of its sketches."""
        return vault_of(self).terms.delta

    @property
    def budget(self) -> PrivacyBudget | None:
        """What is charged for what it sends."""
        return vault_of(self).terms.budget

    @property
    def privacy_spent(self) -> tuple[PrivacySpent, ...]:
        """Statements of the sketches that it has published."""
        return tuple(message.statement for message in vault_of(self).releases.values())

    def publish_sketch(self, request: SketchRequest) -> SketchMessage:
        """Release a sketch, or return the one that was released for the same request.

        Parameters
        ----------
        request : SketchRequest
            What to measure. It says nothing about noise, which is the party's decision.

        Returns
        -------
        SketchMessage
            The same request gets the same release, for free.

        Raises
        ------
        ProtocolRefusedError
            If the party does not take part in "sliced", weighs its rows, or has no budget for a
            second request. Nothing is charged.
        BudgetExceededError
            If the budget has too little left. Nothing is charged.
        MessageError
            If the request asks about other features, or the sketch could not be sent. Nothing
            is charged.

        Privacy
        -------
        As `SlicedSketch.fit`: one Gaussian event at the party's own (epsilon, delta), charged
        before the noise is drawn. The bounds are those of the request, public and the same for
        all parties; rows beyond are clipped.
        """
        vault, terms = vault_of(self), vault_of(self).terms
        vault.check_agreed("sliced")
        check_type(request, SketchRequest)
        key = request.to_bytes()
        with vault.lock:
            rehearsed(vault, request)
            if key not in vault.releases:
                names = vault.feature_names
                sketch = SlicedSketch(
                    terms.epsilon,
                    terms.delta,
                    budget=terms.budget,
                    random_state=release_seed(terms.random_state, vault.name, request),
                    **request.sketch_parameters,
                )
                rows = vault.rows if names is None else pd.DataFrame(vault.rows, columns=names)
                vault.releases[key] = SketchMessage(sketch.fit(rows))
            release: SketchMessage = vault.releases[key]
            return release

    def __repr__(self) -> str:
        return (
            f"Party({self.name!r}, n_samples={self.n_samples}, n_features={self.n_features}, "
            f"allows={self.allows})"
        )

    def __reduce_ex__(self, protocol: Any) -> NoReturn:
        """Refuse to be pickled or copied."""
        raise TypeError(
            f"Party {self.name!r} cannot be pickled or copied: its rows stay where they are. Make "
            "it in the process that answers for it."
        )


def _checked_name(name: Any) -> str:
    if not (isinstance(name, str) and name.strip()):
        raise ValueError(f"name must be text that is not empty, got {type(name).__name__}.")
    if not is_writable(name):
        raise ValueError("name must be text that UTF-8 can write, without lone surrogates.")
    return name


def _checked_terms(allows: Iterable[str], **terms: Any) -> Terms:
    given = (allows,) if isinstance(allows, str) else tuple(allows)
    if not given or any(protocol not in PROTOCOLS for protocol in given):
        raise ValueError(f"allows must hold one or more of {PROTOCOLS}, got {given}.")
    budget = terms["budget"]
    if not (budget is None or isinstance(budget, PrivacyBudget)):
        raise TypeError(f"budget must be a PrivacyBudget or None, got {type(budget).__name__}.")
    privacy_target(terms["epsilon"], terms["delta"], budget)  # checks their ranges
    check_random_state(terms["random_state"])
    return Terms(allows=tuple(name for name in PROTOCOLS if name in given), **terms)


def _measure(rows: np.ndarray, y: Any, masses: Any, covariance: str) -> DiscreteMeasure | None:
    """Return the measure of rows with labels or weights; None if there are none."""
    if y is not None:
        return labelled_measure(rows, y, masses=masses, covariance=covariance)
    return None if masses is None else DiscreteMeasure(rows, masses)
