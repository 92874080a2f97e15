"""The Wasserstein distance between parties who cannot share their data."""

import math
from numbers import Integral, Real
from typing import Any, Self

from skdpot._utils.validation import Interval, StrOptions, all_or_nothing, fit_context
from skdpot.estimators._comparisons import Comparisons
from skdpot.estimators._distance_protocols import PROTOCOLS
from skdpot.privacy.budget import PrivacyBudget
from skdpot.privacy.spent import PrivateEstimatorMixin
from skdpot.slicing.sketch import SlicedSketch

__all__ = ["PrivateWassersteinDistance"]

# What a fit sets, beyond what scikit-learn takes care of.
_FITTED = (
    *("sketch_", "reference_", "privacy_spent_", "n_samples_", "bounds_"),
    *("feature_names_in_", "_own"),
)


class PrivateWassersteinDistance(PrivateEstimatorMixin, Comparisons):
    """Wasserstein distance between data sets of parties who cannot share them.

    Only the default protocol is differentially private. With ``protocol="triangle"`` and
    "fedwad", whoever sees a party's message and knows what the parties share recovers every
    row of it exactly; `skdpot.audit.reconstruction` does it in a second.

    Parameters
    ----------
    protocol : {"sliced", "triangle", "fedwad"}, default="sliced"
        "sliced": each party publishes a private sketch (`SlicedSketch`), and the sliced
        Wasserstein distance is estimated from the two, less what their noise adds.
        "triangle" (TriangleWad): each party publishes an interpolation of its rows with a
        shared Gaussian sample; the distance of the two is scaled up. "fedwad" (FedWad): the
        parties close in on a measure between them in rounds. Both are **not private**.
    epsilon : float, default=1.0
        Privacy parameter of each sketch; ``inf`` for no privacy. Of "sliced" only, as are the
        parameters down to `target`.
    delta : float, default=1e-5
        Privacy parameter of each sketch, in (0, 1).
    budget : PrivacyBudget, optional
        Shared budget that `fit`, `transform` and `publish` are charged to. A budget with a
        finite epsilon refuses the protocols that are not private.
    bounds : "private", (low, high) or DataBounds, default="private"
        What is known about the range of each feature, see `SlicedSketch`. Sketches that were
        fitted apart can be compared when all have the same public bounds: declared, or the
        `bounds_` that one of the parties has released. Rows beyond are clipped, and distances
        are those of clipped rows: declare bounds that hold everybody's rows. Private bounds fit
        the rows of one party, and distances are then in the unit of the scaled features.
    norm_bound : float, optional
        Public bound of the norm of every row, in place of `bounds`.
    n_slices : int or "auto", default="auto"
        Number of directions. "auto" depends on the number of features alone, so that parties
        of all sizes take the same.
    n_bins : int, default=64
        Number of bins along each direction, 512 at most.
    slices : {"orthogonal", "axes+orthogonal", "uniform"} or array of shape (n_slices, \
n_features), default="orthogonal"
        How directions are drawn, or public directions. Not the axes first, as in `SlicedSketch`:
        along them alone, data with equal marginals cannot be told apart.
    target : {"population", "data"}, default="population"
        Between what the distance is estimated. "population": the laws that the rows were
        sampled from; zero if both parties sample from one law. "data": the rows themselves.
    t : float, default=0.5
        Where between a party's rows (0) and the shared measure (1) its message lies, in (0, 1).
        Of "triangle", and of "fedwad" if `draw_t` is False.
    disclose_t : bool, default=True
        Whether both parties of "triangle" use the public `t`. If not, the fitted party keeps
        `t` to itself, the other answers for three values, and a parabola through the answers
        is read at `t` (Theorem 3.5, which is an inequality: this approximates).
    draw_t : bool, default=True
        Whether each round of "fedwad" draws its t uniformly. With a fixed one the rounds
        stall far from the distance.
    gamma_scale : float, default=1.0
        Standard deviation of the shared Gaussian sample. From about the spread of the data on,
        "triangle" returns the distance *linearised* through the sample, far above W₂.
    gamma_mean : float, default=0.0
        Mean of the shared Gaussian sample.
    n_support : int, optional
        Number of rows of the shared sample; by default as many as the fitted rows.
    interpolation : {"barycentric", "exact"}, default="barycentric"
        Whether a row that the plan splits is moved to the mean of its targets, or split.
    n_rounds : int, default=30
        Rounds of "fedwad".
    labeled : bool, default=False
        Whether rows are compared together with the mean and the covariance of their class
        (section 3.4.1 of the paper); needs `y`. Not for "sliced".
    shared_seed : int, default=0
        Draws everything that is public and that the parties must share: directions, the
        Gaussian sample, the t of each round. It gives nothing away: it is no `random_state`.
        Messages are only comparable if they were made with one seed (and with "triangle" one
        `t`, `n_support`, `gamma_scale` and `gamma_mean`).
    device : {"auto", "cpu", "cuda"}, default="auto"
        Where projections are counted.
    random_state : int, RandomState or None, default=None
        Makes the privacy noise reproducible. For tests only: whoever knows it can remove the
        noise.
    verbose : int, default=0
        1 shows a progress bar over the rounds of "fedwad".

    Attributes
    ----------
    sketch_ : SlicedSketch
        What this party published; only with ``protocol="sliced"``.
    bounds_ : DataBounds
        Map from the data to the ball that is binned; only with ``protocol="sliced"``.
    reference_ : ReferenceMeasure
        The shared sample; only with the other protocols.
    privacy_spent_ : PrivacySpent
        What the fit cost, and under which assumptions.
    n_samples_ : int
        Number of rows.
    n_features_in_ : int
        Number of features.
    feature_names_in_ : ndarray of shape (n_features_in_,)
        Names of features, when X has names that are all strings.

    Privacy
    -------
    With ``protocol="sliced"``, `fit` releases one sketch and nothing else, under replace-one;
    `transform` and `publish` of other rows release and charge another. Comparing released
    sketches costs nothing. Rows given to `distance`, `compare`, `score` and `score_samples`
    are treated as public. With ``protocol="triangle"`` and "fedwad" nothing is private: the
    statement says epsilon = inf, and a `NotPrivateWarning` what that means. A fitted estimator
    of theirs keeps its rows and refuses to be pickled.

    See Also
    --------
    ClientContribution : Who of many parties is near to a reference.
    skdpot.federated.party.Party : Data sets that stay where they are.
    skdpot.metrics.wasserstein_distance : Between two data sets that one person holds.

    References
    ----------
    "sliced": this package. "triangle": W. Li, Y. Pang, "Private Wasserstein distance", with
    the corrections of the user guide. "fedwad": A. Rakotomamonjy, K. Nadjahi, L. Ralaivola,
    "Federated Wasserstein distance", ICLR 2024.

    Examples
    --------
    >>> import numpy as np
    >>> from skdpot import PrivateWassersteinDistance
    >>> rng = np.random.default_rng(0)
    >>> here = rng.normal(0.0, 0.2, size=(5000, 4))
    >>> there = rng.normal(0.3, 0.2, size=(5000, 4))
    >>> private = PrivateWassersteinDistance(epsilon=1.0, bounds=(-1, 1)).fit(here)
    >>> other = PrivateWassersteinDistance(epsilon=1.0, bounds=(-1, 1)).fit(there)
    >>> bool(abs(private.distance(other) - 0.3) < 0.03)
    True
    """

    _stated_in = ("sketch_",)
    _parameter_constraints: dict[str, list[Any]] = {
        "protocol": [StrOptions(set(PROTOCOLS))],
        "epsilon": [Interval(Real, 0, None, closed="right")],
        "delta": [Interval(Real, 0, 1, closed="neither")],
        "budget": [PrivacyBudget, None],
        "bounds": SlicedSketch._parameter_constraints["bounds"],
        "norm_bound": [Interval(Real, 0, None, closed="neither"), None],
        "n_slices": [StrOptions({"auto"}), Interval(Integral, 1, None, closed="left")],
        "n_bins": [Interval(Integral, 2, 512, closed="both")],
        "slices": [StrOptions({"axes+orthogonal", "orthogonal", "uniform"}), "array-like"],
        "target": [StrOptions({"population", "data"})],
        "t": [Interval(Real, 0, 1, closed="neither")],
        "disclose_t": ["boolean"],
        "draw_t": ["boolean"],
        "gamma_scale": [Interval(Real, 0, None, closed="left")],
        "gamma_mean": [Interval(Real, None, None, closed="neither")],
        "n_support": [Interval(Integral, 1, None, closed="left"), None],
        "interpolation": [StrOptions({"barycentric", "exact"})],
        "n_rounds": [Interval(Integral, 1, None, closed="left")],
        "labeled": ["boolean"],
        "shared_seed": [Interval(Integral, 0, None, closed="left")],
        "device": [StrOptions({"auto", "cpu", "cuda"})],
        "random_state": ["random_state"],
        "verbose": ["verbose"],
    }

    def __init__(
        self,
        protocol: str = "sliced",
        epsilon: float = 1.0,
        delta: float = 1e-5,
        *,
        budget: PrivacyBudget | None = None,
        bounds: Any = "private",
        norm_bound: float | None = None,
        n_slices: int | str = "auto",
        n_bins: int = 64,
        slices: Any = "orthogonal",
        target: str = "population",
        t: float = 0.5,
        disclose_t: bool = True,
        draw_t: bool = True,
        gamma_scale: float = 1.0,
        gamma_mean: float = 0.0,
        n_support: int | None = None,
        interpolation: str = "barycentric",
        n_rounds: int = 30,
        labeled: bool = False,
        shared_seed: int = 0,
        device: str = "auto",
        random_state: Any = None,
        verbose: int = 0,
    ) -> None:
        self.protocol = protocol
        self.epsilon = epsilon
        self.delta = delta
        self.budget = budget
        self.bounds = bounds
        self.norm_bound = norm_bound
        self.n_slices = n_slices
        self.n_bins = n_bins
        self.slices = slices
        self.target = target
        self.t = t
        self.disclose_t = disclose_t
        self.draw_t = draw_t
        self.gamma_scale = gamma_scale
        self.gamma_mean = gamma_mean
        self.n_support = n_support
        self.interpolation = interpolation
        self.n_rounds = n_rounds
        self.labeled = labeled
        self.shared_seed = shared_seed
        self.device = device
        self.random_state = random_state
        self.verbose = verbose

    def _epsilon_due(self) -> float:
        return self.epsilon if self.protocol == "sliced" else math.inf

    @fit_context(prefer_skip_nested_validation=True)
    def fit(self, X: Any, y: Any = None, *, masses: Any = None) -> Self:
        """Set this party's measure, and publish its sketch if the protocol is private.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            This party's rows, at least two.
        y : array-like of shape (n_samples,), optional
            Their classes; only used with ``labeled=True``.
        masses : array-like of shape (n_samples,), optional
            Non-negative weights of the rows, scaled to sum to one. Not for "sliced", where
            every person counts alike.

        Returns
        -------
        self : PrivateWassersteinDistance
            Fitted estimator.

        Raises
        ------
        ValueError
            If parameters or data are not usable. Nothing is charged.
        BudgetExceededError
            If `budget` cannot pay. Nothing is charged and nothing changes.
        """
        with all_or_nothing(self):
            for name in _FITTED:
                self.__dict__.pop(name, None)
            PROTOCOLS[self.protocol].fit(self, X, y, masses)
            self._fitted_protocol = self.protocol
        # Here, so that warnings that are made errors do not lose what was paid for.
        PROTOCOLS[self.protocol].advise(self)
        return self

    def __sklearn_tags__(self) -> Any:
        """Say that the noise differs from fit to fit."""
        tags = super().__sklearn_tags__()
        tags.non_deterministic = True
        return tags
