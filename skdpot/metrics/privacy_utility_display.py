"""Picture of the trade-off between privacy and utility: a score against epsilon."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import pandas as pd
from sklearn.base import clone, is_classifier, is_regressor
from sklearn.dummy import DummyClassifier, DummyRegressor
from sklearn.metrics import check_scoring

from skdpot.exceptions import BudgetExceededError
from skdpot.metrics._panels import COLORS, MARKERS
from skdpot.privacy.budget import PrivacyBudget
from skdpot.privacy.calibration import privacy_target
from skdpot.privacy.events import ComposedEvent, GaussianEvent
from skdpot.privacy.spent import PrivacySpent, total_spent

__all__ = ["PrivacyUtilityDisplay", "check_epsilons", "floor_of", "sweep"]

_ROUNDING = 1 + 1e-9  # each charge is rounded up by itself


def check_epsilons(epsilons: Any) -> list[float]:
    """Return finite epsilons, increasing.

    Parameters
    ----------
    epsilons : sequence of float
        What the caller asked for.

    Returns
    -------
    list of float

    Raises
    ------
    ValueError
        If there are none, or one is not positive and finite, or occurs twice.
    """
    values = np.sort(np.atleast_1d(np.asarray(epsilons, dtype=np.float64)).ravel())
    if not values.size or not np.isfinite(values).all() or values[0] <= 0:
        raise ValueError(
            "epsilons must be positive and finite; for a line without privacy pass reference=, a "
            "score or an estimator."
        )
    if (np.diff(values) == 0).any():
        raise ValueError("epsilons must be different; n_repeats= fits each of them several times.")
    found: list[float] = values.tolist()
    return found


def sweep(
    estimator: Any,
    private: tuple[Any, Any],
    public: tuple[Any, Any],
    epsilons: Sequence[float],
    *,
    n_repeats: int,
    scoring: Any,
    parameter: str,
    fit_params: dict[str, Any],
) -> tuple[pd.DataFrame, PrivacySpent | None]:
    """Fit clones and score them.

    Parameters
    ----------
    estimator : estimator
        With a parameter that is its epsilon.
    private, public : tuple of (X, y)
        What clones are fitted to, and scored on.
    epsilons : sequence of float
        Values of the parameter.
    n_repeats : int
        Fits of each.
    scoring : str, callable or None
        As for scikit-learn.
    parameter : str
        Name of the parameter.
    fit_params : dict
        For ``fit``.

    Returns
    -------
    results : DataFrame
        Columns epsilon and score, a row a fit.
    spent : PrivacySpent or None
        What all fits together cost; None if they do not say what they spent.

    Raises
    ------
    BudgetExceededError
        If a budget cannot pay for all fits: before the first one, where their costs follow from
        their epsilons.
    ValueError
        If there is no such parameter.
    """
    if parameter not in estimator.get_params():
        raise ValueError(
            f"{type(estimator).__name__} has no parameter {parameter!r}; parameter= names its "
            "epsilon, such as 'sampler__epsilon' in a pipeline."
        )
    _check_affordable(estimator, epsilons, n_repeats, parameter)
    fitted, rows = [], []
    for epsilon in epsilons:
        for _ in range(n_repeats):
            model = clone(estimator).set_params(**{parameter: epsilon})
            model.fit(*private, **fit_params)
            score = float(check_scoring(model, scoring=scoring)(model, *public))
            fitted.append(model)
            rows.append((epsilon, score))
    return pd.DataFrame(rows, columns=["epsilon", "score"]), _total(fitted)


def floor_of(floor: Any, estimator: Any, public: tuple[Any, Any], scoring: Any) -> float | None:
    """Return the score that takes no features to reach, by default of a constant prediction.

    The constant is learned from the public rows.
    """
    if not isinstance(floor, str):
        return None if floor is None else float(floor)
    if floor != "auto":
        raise ValueError(f"floor={floor!r} must be 'auto', a number or None.")
    if public[1] is None or not (is_classifier(estimator) or is_regressor(estimator)):
        return None
    guess = DummyClassifier(strategy="prior") if is_classifier(estimator) else DummyRegressor()
    guess.fit(*public)
    return float(check_scoring(guess, scoring=scoring)(guess, *public))


def _check_affordable(
    estimator: Any, epsilons: Sequence[float], n_repeats: int, parameter: str
) -> None:
    """Refuse before anything is spent what a budget cannot pay for in the end."""
    owner, _, _ = parameter.rpartition("__")
    params = estimator.get_params()
    prefix = f"{owner}__" if owner else ""
    budget, delta = params.get(f"{prefix}budget"), params.get(f"{prefix}delta")
    if not isinstance(budget, PrivacyBudget) or delta is None or math.isinf(budget.epsilon):
        return
    mus = [privacy_target(epsilon, delta, budget).mu_cap for epsilon in epsilons]
    one = [GaussianEvent(sigma=1.0, sensitivity=mu * _ROUNDING) for mu in mus]
    fits = len(epsilons) * n_repeats
    if not budget.can_afford(ComposedEvent(events=tuple(one * n_repeats))):
        raise BudgetExceededError(
            f"{fits} fits, {n_repeats} at each of the epsilons, cost more than the budget has left "
            f"(epsilon={budget.epsilon:g} in all). Nothing was charged. Ask for fewer or smaller "
            "epsilons or fewer repeats, or sweep over public rows without a budget."
        )


def _total(fitted: list[Any]) -> PrivacySpent | None:
    """Return what all fits cost together."""
    try:
        return total_spent(*fitted)
    except TypeError:  # an estimator that makes no statement
        return None


_MOST_TICKS = 8


@dataclass(kw_only=True, eq=False, repr=False)
class PrivacyUtilityDisplay:
    """A score against epsilon, with the spread of repeated fits.

    Make one with `from_frame` or `from_estimator`. Parameters are stored as attributes.

    Parameters
    ----------
    runs : DataFrame
        One row a fit, with columns ``method``, ``epsilon`` and ``score``.
    references : dict of str to float, optional
        Score without privacy, by method.
    floor : float, optional
        Score that takes no data to reach, such as that of a constant prediction.
    score_name : str, default="score"
        Label of the vertical axis.
    spent : PrivacySpent, optional
        What all fits together cost.

    Attributes
    ----------
    points_ : DataFrame
        ``method``, ``epsilon``, ``mean``, ``std`` (NaN for a single fit) and ``n_runs``.
    ax_ : matplotlib Axes
        Axes with the curves.
    figure_ : matplotlib Figure
        Figure that holds them.
    errorbars_ : dict of str to ErrorbarContainer
        Mean and standard deviation of each method.
    dots_ : dict of str to PathCollection
        Single fits.
    reference_lines_ : dict of str to matplotlib Line2D
        Scores without privacy.
    floor_line_ : matplotlib Line2D or None
        The floor.

    See Also
    --------
    FairnessFrontierDisplay : Accuracy against parity.
    BudgetDisplay : What fits have cost together.

    Privacy
    -------
    Scores are treated as public: they must have been measured on public rows. Many private fits to
    the same rows compose: a picture of five epsilons costs more than the largest of them.

    Examples
    --------
    >>> import numpy as np
    >>> import pandas as pd
    >>> from skdpot.metrics import PrivacyUtilityDisplay
    >>> results = pd.DataFrame({
    ...     "epsilon": [0.1, 0.1, 1.0, 1.0, np.inf],
    ...     "accuracy": [0.52, 0.60, 0.81, 0.83, 0.90],
    ... })
    >>> display = PrivacyUtilityDisplay.from_frame(results, score="accuracy", floor=0.5)
    >>> display.points_[["epsilon", "mean", "n_runs"]]
       epsilon  mean  n_runs
    0      0.1  0.56       2
    1      1.0  0.82       2
    >>> display.references
    {'score': 0.9}
    """

    runs: pd.DataFrame
    references: dict[str, float] | None = None
    floor: float | None = None
    score_name: str = "score"
    spent: PrivacySpent | None = None

    @classmethod
    def from_frame(
        cls,
        results: pd.DataFrame,
        *,
        epsilon: str = "epsilon",
        score: str = "score",
        method: str | None = None,
        floor: float | None = None,
        score_name: str | None = None,
        ax: Any = None,
        **kwargs: Any,
    ) -> Self:
        """Draw results of a study.

        Parameters
        ----------
        results : DataFrame
            One row a fit. Rows with an infinite epsilon are the line without privacy of their
            method.
        epsilon : str, default="epsilon"
            Column of the horizontal axis.
        score : str, default="score"
            Column of the vertical axis.
        method : str, optional
            Column with the name of the method, which has a colour and a marker; by default there
            is one method.
        floor : float, optional
            Score that takes no data to reach.
        score_name : str, optional
            Label of the vertical axis; the name of the column by default.
        ax : matplotlib Axes, optional
            Axes to draw on; new ones by default.
        **kwargs : dict
            For `plot`.

        Returns
        -------
        PrivacyUtilityDisplay
            The display, drawn.

        Raises
        ------
        ValueError
            If a column does not exist, an epsilon is not positive, a score is missing, or no row
            has a finite epsilon.

        Privacy
        -------
        Results are treated as public.
        """
        wanted = [epsilon, score, *([] if method is None else [method])]
        absent = [column for column in wanted if column not in results]
        if absent:
            raise ValueError(f"results has no columns {absent}; it has {list(results.columns)}.")
        runs = pd.DataFrame(
            {
                "method": "score" if method is None else results[method].astype(str),
                "epsilon": results[epsilon].astype(float),
                "score": results[score].astype(float),
            }
        ).reset_index(drop=True)
        if not (runs["epsilon"] > 0).all() or not np.isfinite(runs["score"]).all():
            raise ValueError(f"results must hold positive numbers in {epsilon!r}, and finite ones "
                             f"in {score!r}.")  # fmt: skip
        private = np.isfinite(runs["epsilon"])
        if not private.any():
            raise ValueError("results has no row with a finite epsilon; there is nothing to draw.")
        means = runs[~private].groupby("method", sort=False)["score"].mean()
        return cls(
            runs=runs[private].reset_index(drop=True),
            references={str(name): float(value) for name, value in means.items()},
            floor=floor,
            score_name=score.replace("_", " ") if score_name is None else score_name,
        ).plot(ax=ax, **kwargs)

    @classmethod
    def from_estimator(
        cls,
        estimator: Any,
        X: Any,
        y: Any = None,
        *,
        X_test: Any,
        y_test: Any = None,
        epsilons: Any = (0.1, 0.3, 1.0, 3.0, 10.0),
        n_repeats: int = 3,
        scoring: Any = None,
        reference: Any = None,
        floor: Any = "auto",
        parameter: str = "epsilon",
        fit_params: dict[str, Any] | None = None,
        score_name: str | None = None,
        ax: Any = None,
        **kwargs: Any,
    ) -> Self:
        """Fit an estimator at several epsilons, score it on public rows, and draw the scores.

        Parameters
        ----------
        estimator : estimator
            With a parameter that is its epsilon. Clones of it are fitted; it stays as it is.
        X : array-like of shape (n, d)
            Private rows to fit to.
        y : array-like of shape (n,), optional
            Their targets.
        X_test : array-like of shape (m, d)
            **Public** rows to score on, which are not among the private ones.
        y_test : array-like of shape (m,), optional
            Their targets.
        epsilons : sequence of float, default=(0.1, 0.3, 1, 3, 10)
            Values of the parameter; finite.
        n_repeats : int, default=3
            Fits at each epsilon, which differ by their randomness alone.
        scoring : str or callable, optional
            A name that scikit-learn knows, or ``scorer(estimator, X, y)``; by default the
            estimator's own ``score``.
        reference : float or estimator, optional
            The line without privacy: a score, or an estimator that is fitted to `X` and `y`. **That
            fit is not private**: give one only where the private rows may be used so.
        floor : "auto", float or None, default="auto"
            Score that takes no features to reach; "auto" is that of a constant prediction, learned
            from `y_test`, for classifiers and regressors.
        parameter : str, default="epsilon"
            Name of the parameter, such as ``"sampler__epsilon"`` in a pipeline.
        fit_params : dict, optional
            For ``fit``, such as `sensitive_features`.
        score_name : str, optional
            Label of the vertical axis; `scoring` by default, if that is a name.
        ax : matplotlib Axes, optional
            Axes to draw on; new ones by default.
        **kwargs : dict
            For `plot`.

        Returns
        -------
        PrivacyUtilityDisplay
            The display, drawn.

        Raises
        ------
        BudgetExceededError
            If the estimator has a budget that cannot pay for all fits.
        ValueError
            If there is no such parameter, or an argument is out of range.

        Privacy
        -------
        Each fit touches the private rows and is charged to the estimator's budget, if it has one:
        ``len(epsilons) * n_repeats`` charges, and as many releases. Together they cost what
        ``spent`` of the display says, more than the largest epsilon. A sweep to *choose* an
        epsilon belongs on public rows of the same kind. Scores are of public rows, and thus
        post-processing, but for a `reference` that is an estimator.
        """
        values = check_epsilons(epsilons)
        if not n_repeats >= 1:
            raise ValueError(f"n_repeats={n_repeats!r} must be at least 1.")
        public = (X_test, y_test)
        least = floor_of(floor, estimator, public, scoring)
        options = fit_params or {}
        results, spent = sweep(
            estimator,
            (X, y),
            public,
            values,
            n_repeats=n_repeats,
            scoring=scoring,
            parameter=parameter,
            fit_params=options,
        )
        name = type(estimator).__name__
        if hasattr(reference, "fit"):
            model = clone(reference).fit(X, y)
            reference = check_scoring(model, scoring=scoring)(model, *public)
        default_name = scoring.replace("_", " ") if isinstance(scoring, str) else "score"
        return cls(
            runs=results.assign(method=name)[["method", "epsilon", "score"]],
            references={} if reference is None else {name: float(reference)},
            floor=least,
            score_name=default_name if score_name is None else score_name,
            spent=spent,
        ).plot(ax=ax, **kwargs)

    def plot(self, ax: Any = None, *, legend: bool = True, **kwargs: Any) -> Self:
        """Draw the curves, the lines without privacy and the floor.

        Parameters
        ----------
        ax : matplotlib Axes, optional
            Axes to draw on; new ones by default, with the legend beside them.
        legend : bool, default=True
            Whether to draw the legend.
        **kwargs : dict
            For ``Axes.errorbar``.

        Returns
        -------
        PrivacyUtilityDisplay
            The display.
        """
        import matplotlib.pyplot as plt

        beside = ax is None
        if ax is None:
            _, ax = plt.subplots(figsize=(7.2, 4.2), layout="constrained")
        self.points_ = self._points()
        self.errorbars_: dict[str, Any] = {}
        self.dots_: dict[str, Any] = {}
        self.reference_lines_: dict[str, Any] = {}
        for k, (name, points) in enumerate(self.points_.groupby("method", sort=False)):
            self._draw_method(ax, str(name), points, k, kwargs)
        self.floor_line_ = None
        if self.floor is not None:
            style = {"color": "black", "linestyle": ":", "linewidth": 1, "label": "floor"}
            self.floor_line_ = ax.axhline(self.floor, **style)
        self._label(ax)
        self.ax_, self.figure_ = ax, ax.figure
        lines = [*self.errorbars_.values(), *self.reference_lines_.values()]
        handles = lines if self.floor_line_ is None else [*lines, self.floor_line_]
        if legend and beside:
            style = {"loc": "center left", "bbox_to_anchor": (1.0, 0.5), "frameon": False}
            ax.legend(handles=handles, **style)
        elif legend:
            ax.legend(handles=handles, loc="best", fontsize="small")
        return self

    def _points(self) -> pd.DataFrame:
        """Return mean and spread of each method at each epsilon."""
        grouped = self.runs.groupby(["method", "epsilon"], sort=False)["score"]
        points = grouped.agg(mean="mean", std="std", n_runs="size").reset_index()
        order = {name: k for k, name in enumerate(points["method"].unique())}
        ranks = points["method"].map(order)
        return points.iloc[np.lexsort((points["epsilon"], ranks))].reset_index(drop=True)

    def _draw_method(
        self, ax: Any, name: str, points: pd.DataFrame, k: int, style: dict[str, Any]
    ) -> None:
        """Draw the fits of one method, their means and the line without privacy."""
        color = COLORS[k % len(COLORS)]
        single = self.points_["method"].nunique() == 1
        runs = self.runs[self.runs["method"] == name]
        dots = {"color": color, "alpha": 0.35, "s": 14, "linewidths": 0, "zorder": 1}
        self.dots_[name] = ax.scatter(runs["epsilon"], runs["score"], **dots)
        bars = {"color": color, "marker": MARKERS[k % len(MARKERS)], "markersize": 5, "capsize": 3}
        self.errorbars_[name] = ax.errorbar(
            points["epsilon"],
            points["mean"],
            yerr=points["std"],
            **(bars | {"linewidth": 1.5, "elinewidth": 1, "label": name} | style),
        )
        if self.references and name in self.references:
            self.reference_lines_[name] = ax.axhline(
                self.references[name],
                color=color,
                linestyle="--",
                linewidth=1,
                label="without privacy" if single else f"{name}, without privacy",
            )

    def _label(self, ax: Any) -> None:
        """Set the logarithmic axis, with a tick at each epsilon where there are few."""
        ax.set_xscale("log")
        epsilons = np.unique(self.runs["epsilon"])
        if len(epsilons) <= _MOST_TICKS:
            ax.set_xticks(epsilons, [f"{epsilon:g}" for epsilon in epsilons])
            ax.set_xticks([], minor=True)
        ax.set(xlabel="ε", ylabel=self.score_name)
