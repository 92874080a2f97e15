"""Displays of the cost of privacy: a score against epsilon, and the charges of a budget."""

import math
import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import cycle
from typing import Any, Self

import numpy as np
import pandas as pd
from sklearn.base import clone, is_classifier, is_regressor
from sklearn.dummy import DummyClassifier, DummyRegressor
from sklearn.metrics import check_scoring

from skdpot._utils.arguments import check_count
from skdpot._utils.panels import (
    COLORS,
    add_legend_beside,
    check_choice,
    check_columns,
    cut_short,
    draw_methods,
    single_axes,
)
from skdpot.exceptions import BudgetExceededError
from skdpot.privacy.budget import PrivacyBudget, epsilon_of
from skdpot.privacy.events import ComposedEvent, GaussianEvent
from skdpot.privacy.rounding import rounded_up
from skdpot.privacy.spent import total_spent
from skdpot.privacy.statement import PrivacySpent
from skdpot.privacy.targets import privacy_target

_MOST_TICKS = 8
_ROUNDING = 1 + 1e-9  # each charge is rounded up separately
_MOST_BARS = 25
_MOST_LETTERS = 34
_ROW_HEIGHT = 0.28  # inches


def _floor_of(
    floor: str | float | None, model: object, X: Any, y: Any, scoring: Any
) -> float | None:
    """Return the score without features, by default that of a constant prediction."""
    if not isinstance(floor, str):
        return None if floor is None else float(floor)
    if floor != "auto":
        raise ValueError(f"floor={floor!r} must be 'auto', a number or None.")
    if y is None or not (is_classifier(model) or is_regressor(model)):
        return None
    guess = DummyClassifier(strategy="prior") if is_classifier(model) else DummyRegressor()
    return _score(guess.fit(X, y), X, y, scoring)


def _score(model: object, X: Any, y: Any, scoring: Any) -> float:
    """Score a fitted model on public rows."""
    return float(check_scoring(model, scoring=scoring)(model, X, y))


def _check_affordable(
    estimator: Any, epsilons: Sequence[float], n_repeats: int, parameter: str
) -> None:
    """Refuse a sweep that costs more than the rest of the budget, before anything is spent."""
    owner, mark, _ = parameter.rpartition("__")
    params = estimator.get_params()
    budget, delta = (params.get(f"{owner}{mark}{name}") for name in ("budget", "delta"))
    if not isinstance(budget, PrivacyBudget) or delta is None or math.isinf(budget.epsilon):
        return
    mus = [privacy_target(epsilon, delta, budget).mu_cap for epsilon in epsilons]
    events = [GaussianEvent(sigma=1.0, sensitivity=mu * _ROUNDING) for mu in mus]
    n_fits = len(epsilons) * n_repeats
    if not budget.can_afford(ComposedEvent(events=tuple(events * n_repeats))):
        raise BudgetExceededError(
            f"{n_fits} fits, {n_repeats} per epsilon, cost more than what is left of the budget "
            f"(epsilon={budget.epsilon:g} in total). Nothing was charged. Use fewer or smaller "
            "epsilons or fewer repeats, or sweep over public rows without a budget."
        )


@dataclass(kw_only=True, eq=False, repr=False)
class PrivacyUtilityDisplay:
    """A score against epsilon, with the spread of repeated fits.

    Create it with `from_frame` or `from_estimator`. Parameters are stored as attributes.

    Parameters
    ----------
    runs : DataFrame
        One row per fit, with columns ``method``, ``epsilon`` and ``score``.
    references : dict of str to float, optional
        Score without privacy, by method.
    floor : float, optional
        Score of a model without data, such as a constant prediction.
    score_name : str, default="score"
        Label of the vertical axis.
    spent : PrivacySpent, optional
        Total cost of all fits.

    Attributes
    ----------
    points_ : DataFrame
        ``method``, ``epsilon``, ``mean``, ``std`` (NaN for a single fit) and ``n_runs``.
    ax_, figure_ : matplotlib Axes and Figure
        Axes and figure of the drawing.
    errorbars_, dots_, reference_lines_ : dict of str to artist
        Mean and standard deviation, single fits, and score without privacy, by method.
    floor_line_ : matplotlib Line2D or None
        The floor.

    Privacy
    -------
    Scores are treated as public, so they must be measured on public rows. Private fits to the same
    rows compose: a display of five epsilons costs more than the largest epsilon.

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
        **kwargs: Any,
    ) -> Self:
        """Draw the results of a study and return the display.

        Parameters
        ----------
        results : DataFrame
            One row per fit. Rows with an infinite epsilon define the line without privacy of
            their method.
        epsilon, score : str, default="epsilon", "score"
            Columns of the horizontal and the vertical axis.
        method : str, optional
            Column with the name of the method; each method has a colour and a marker. By default,
            there is one method.
        floor : float, optional
            Score of a model without data.
        score_name : str, optional
            Label of the vertical axis; the name of the column by default.
        **kwargs : dict
            Arguments of `plot`, such as `ax`.

        Raises
        ------
        ValueError
            If a column does not exist, an epsilon is not positive, a score is missing, or no row
            has a finite epsilon.
        """
        wanted = [epsilon, score, *([] if method is None else [method])]
        check_columns(results, wanted)
        methods = "score" if method is None else results[method].astype(str)
        numbers = results[[epsilon, score]].astype(float).set_axis(["epsilon", "score"], axis=1)
        runs = numbers.assign(method=methods).reset_index(drop=True)
        if not (runs["epsilon"] > 0).all() or not np.isfinite(runs["score"]).all():
            raise ValueError(
                f"results must hold positive numbers in {epsilon!r}, and finite ones in {score!r}."
            )
        private = np.isfinite(runs["epsilon"])
        if not private.any():
            raise ValueError("results has no row with a finite epsilon; there is nothing to draw.")
        means = runs[~private].groupby("method", sort=False)["score"].mean()
        return cls(
            runs=runs[private].reset_index(drop=True),
            references={str(name): float(value) for name, value in means.items()},
            floor=floor,
            score_name=score.replace("_", " ") if score_name is None else score_name,
        ).plot(**kwargs)

    @classmethod
    def from_estimator(
        cls,
        estimator: Any,
        X: Any,
        y: Any = None,
        *,
        X_test: Any,
        y_test: Any = None,
        epsilons: Sequence[float] = (0.1, 0.3, 1.0, 3.0, 10.0),
        n_repeats: int = 3,
        scoring: str | Callable[..., float] | None = None,
        reference: Any = None,
        floor: str | float | None = "auto",
        parameter: str = "epsilon",
        fit_params: dict[str, Any] | None = None,
        score_name: str | None = None,
        **kwargs: Any,
    ) -> Self:
        """Fit at several epsilons, score on public rows, draw the scores and return the display.

        Parameters
        ----------
        estimator : estimator
            An estimator with a parameter for epsilon. It is not changed; its clones are fitted.
        X, y : array-like of shape (n, d), (n,)
            Private rows to fit to, and their targets, if any.
        X_test, y_test : array-like of shape (m, d), (m,)
            **Public** rows to score on, none of which are in `X`, and their targets, if any.
        epsilons : sequence of float, default=(0.1, 0.3, 1, 3, 10)
            Values of the parameter; finite.
        n_repeats : int, default=3
            Number of fits per epsilon; they differ only in their random numbers.
        scoring : str or callable, optional
            Scorer of scikit-learn, or ``scorer(estimator, X, y)``; by default the method ``score``
            of the estimator.
        reference : float or estimator, optional
            Line without privacy: a score, or an estimator that is fitted to `X` and `y`. **That fit
            is not private**: pass an estimator only if the private rows may be used without noise.
        floor : "auto", float or None, default="auto"
            Score of a model without features. For classifiers and regressors, "auto" is the score
            of a constant prediction, learned from `y_test`.
        parameter : str, default="epsilon"
            Name of the parameter, such as ``"sampler__epsilon"`` in a pipeline.
        fit_params : dict, optional
            Arguments of ``fit``, such as `sensitive_features`.
        score_name : str, optional
            Label of the vertical axis; by default `scoring` if it is a name.
        **kwargs : dict
            Arguments of `plot`, such as `ax`.

        Raises
        ------
        BudgetExceededError, ValueError
            If all fits cost more than the rest of the estimator's budget; if the parameter does not
            exist, or an argument is out of range.

        Privacy
        -------
        Each fit reads the private rows and is charged to the estimator's budget, if it has one.
        There are ``len(epsilons) * n_repeats`` releases. Their total cost, ``spent`` of the
        display, exceeds the largest epsilon. To *choose* an epsilon, use public rows of the same
        kind. Scores on public rows are post-processing, except for a `reference` that is an
        estimator.
        """
        values = np.sort(np.ravel(np.asarray(epsilons, dtype=np.float64))).tolist()
        if not values or not np.isfinite(values).all() or values[0] <= 0:
            raise ValueError(
                "epsilons must be positive and finite; for a line without privacy pass reference=, "
                "a score or an estimator."
            )
        if len(set(values)) < len(values):
            raise ValueError("epsilons must be different; n_repeats= repeats each of them.")
        n_repeats = check_count(n_repeats, "n_repeats")
        name = type(estimator).__name__
        least = _floor_of(floor, estimator, X_test, y_test, scoring)
        if parameter not in estimator.get_params():
            raise ValueError(
                f"{name} has no parameter {parameter!r}. Pass parameter=, the name of its epsilon, "
                "such as 'sampler__epsilon' in a pipeline."
            )
        _check_affordable(estimator, values, n_repeats, parameter)
        fitted, rows = [], []
        for epsilon in np.repeat(values, n_repeats).tolist():
            model = clone(estimator).set_params(**{parameter: epsilon})
            fitted.append(model.fit(X, y, **(fit_params or {})))
            rows.append((name, epsilon, _score(model, X_test, y_test, scoring)))
        if hasattr(reference, "fit"):
            reference = _score(clone(reference).fit(X, y), X_test, y_test, scoring)
        spent = None
        with suppress(TypeError):  # the estimator may have no statement
            spent = total_spent(*fitted)
        default_name = scoring.replace("_", " ") if isinstance(scoring, str) else "score"
        return cls(
            runs=pd.DataFrame(rows, columns=["method", "epsilon", "score"]),
            references={} if reference is None else {name: float(reference)},
            floor=least,
            score_name=default_name if score_name is None else score_name,
            spent=spent,
        ).plot(**kwargs)

    def plot(self, ax: Any = None, *, legend: bool = True, **kwargs: Any) -> Self:
        """Draw the curves, the lines without privacy and the floor, and return the display.

        Parameters
        ----------
        ax : matplotlib Axes, optional
            Axes to draw on; by default new ones, with the legend beside them.
        legend : bool, default=True
            Whether to draw the legend.
        **kwargs : dict
            Arguments of ``Axes.errorbar``.
        """
        beside, ax = ax is None, single_axes(ax, (7.2, 4.2))
        grouped = self.runs.groupby(["method", "epsilon"], sort=False)["score"]
        points = grouped.agg(mean="mean", std="std", n_runs="size").reset_index()
        ranks = pd.factorize(points["method"])[0]
        self.points_ = points.iloc[np.lexsort((points["epsilon"], ranks))].reset_index(drop=True)
        bars = {"markersize": 5, "capsize": 3, "linewidth": 1.5, "elinewidth": 1} | kwargs
        figures = {"x": "epsilon", "y": "mean", "yerr": "std"}
        self.errorbars_ = draw_methods(ax, self.points_, figures, bars)
        self.dots_: dict[str, Any] = {}
        self.reference_lines_: dict[str, Any] = {}
        references, alone = self.references or {}, len(self.errorbars_) == 1
        for name, color in zip(self.errorbars_, cycle(COLORS), strict=False):
            runs = self.runs[self.runs["method"] == name]
            dots = {"color": color, "alpha": 0.35, "s": 14, "linewidths": 0, "zorder": 1}
            self.dots_[name] = ax.scatter(runs["epsilon"], runs["score"], **dots)
            if name in references:
                label = "without privacy" if alone else f"{name}, without privacy"
                dashes = {"color": color, "linestyle": "--", "linewidth": 1, "label": label}
                self.reference_lines_[name] = ax.axhline(references[name], **dashes)
        self.floor_line_ = None
        if self.floor is not None:
            style = {"color": "black", "linestyle": ":", "linewidth": 1, "label": "floor"}
            self.floor_line_ = ax.axhline(self.floor, **style)
        ax.set_xscale("log")
        epsilons = np.unique(self.runs["epsilon"])
        if len(epsilons) <= _MOST_TICKS:  # one tick per epsilon
            ax.set_xticks(epsilons, [f"{epsilon:g}" for epsilon in epsilons])
            ax.set_xticks([], minor=True)
        ax.set(xlabel="ε", ylabel=self.score_name)
        self.ax_, self.figure_ = ax, ax.figure
        if legend:
            lines = [*self.errorbars_.values(), *self.reference_lines_.values(), self.floor_line_]
            add_legend_beside(ax, beside, [line for line in lines if line is not None])
        return self


@dataclass(kw_only=True, eq=False, repr=False)
class BudgetDisplay:
    """Epsilon spent after each charge of a budget, against its cap.

    Create it with `from_budget` or `from_ledger`. Parameters are stored as attributes.

    Parameters
    ----------
    history : DataFrame
        Result of `PrivacyBudget.history`, with the column ``epsilon_spent``: the total of this
        charge and all earlier ones.
    epsilon, delta : float
        The cap, which may be infinite, and the delta of all epsilons.

    Attributes
    ----------
    ax_, figure_ : matplotlib Axes and Figure
        Axes and figure of the drawing.
    bars_, line_ : BarContainer, matplotlib Line2D
        The epsilon that each charge added, or the epsilon spent; None for the other `kind`.
    cap_ : matplotlib Line2D or None
        The cap; None if it is infinite.

    Privacy
    -------
    A history contains only public facts: labels, times and costs of admitted charges. It does not
    contain refused charges, which released nothing.

    Notes
    -----
    The epsilons of several charges do not add up: a charge adds less if more is already spent.
    The ends of its bar are the total epsilons before and after the charge.

    Examples
    --------
    >>> from skdpot import PrivacyBudget
    >>> from skdpot.metrics import BudgetDisplay
    >>> from skdpot.privacy.events import GaussianEvent
    >>> budget = PrivacyBudget(epsilon=1.0, delta=1e-5)
    >>> for label in ("mean", "variance"):
    ...     budget.spend(GaussianEvent(sigma=20.0, sensitivity=2.0), label=label)
    >>> display = BudgetDisplay.from_budget(budget)
    >>> display.history["epsilon_spent"].round(2).tolist()
    [0.34, 0.5]
    """

    history: pd.DataFrame
    epsilon: float
    delta: float

    @classmethod
    def from_budget(cls, budget: PrivacyBudget, **kwargs: Any) -> Self:
        """Draw the history of a budget and return the display.

        Parameters
        ----------
        budget : PrivacyBudget
            A budget with any number of charges.
        **kwargs : dict
            Arguments of `plot`, such as `ax`.

        Raises
        ------
        LedgerError, TypeError
            If the ledger cannot be read; if `budget` is not a PrivacyBudget.
        """
        if not isinstance(budget, PrivacyBudget):
            raise TypeError(f"budget must be a PrivacyBudget, not a {type(budget).__name__}.")
        history = budget.history()
        # The ledger keeps sums in whole units; a release without privacy makes them infinite.
        units = np.cumsum(np.rint(history["mu"].to_numpy() ** 2 * 1e12)).tolist()
        totals = [total if math.isinf(total) else int(total) for total in units]
        spent = np.array([epsilon_of(total, budget.delta) for total in totals], dtype=float)
        history["epsilon_spent"] = np.minimum(spent, budget.epsilon)
        return cls(history=history, epsilon=budget.epsilon, delta=budget.delta).plot(**kwargs)

    @classmethod
    def from_ledger(cls, ledger: str | os.PathLike[str], **kwargs: Any) -> Self:
        """Draw the history in a ledger file and return the display.

        Parameters
        ----------
        ledger : str or path-like
            File of a budget that was created with ``ledger=``. It is not changed.
        **kwargs : dict
            Arguments of `plot`, such as `ax`.

        Raises
        ------
        LedgerError
            If the file is missing or is not an intact ledger.
        """
        return cls.from_budget(PrivacyBudget.from_ledger(ledger), **kwargs)

    def plot(
        self, ax: Any = None, *, kind: str = "auto", legend: bool = True, **kwargs: Any
    ) -> Self:
        """Draw the history and return the display.

        Parameters
        ----------
        ax : matplotlib Axes, optional
            Axes to draw on; new ones by default.
        kind : {"auto", "bars", "line"}, default="auto"
            A labelled bar per charge, the oldest at the top, or a line over the number of charges.
            "auto" draws bars for up to 25 charges.
        legend : bool, default=True
            Whether to write the value of the cap.
        **kwargs : dict
            Arguments of ``Axes.barh`` or ``Axes.plot``.
        """
        check_choice("kind", kind, ("auto", "bars", "line"))
        n_charges = len(self.history)
        as_bars = kind == "bars" or (kind == "auto" and n_charges <= _MOST_BARS)
        height = max(2.0, 1.3 + _ROW_HEIGHT * n_charges) if as_bars else 4.0
        ax = single_axes(ax, (7.2, height))
        spent, limit = self.history["epsilon_spent"].to_numpy(), self.epsilon
        if math.isinf(limit):  # bars of releases without privacy end at this limit
            limit = 1.25 * float(spent[np.isfinite(spent)].max(initial=0.0)) or 1.0
        after = np.concatenate([[0.0], np.minimum(spent, limit)])
        ends, label = (0, 1.12 * limit), f"ε spent, at δ = {self.delta:g}"
        self.bars_ = self.line_ = self.cap_ = None
        if as_bars:
            ax.set(xlim=ends, xlabel=label, ylim=(max(n_charges, 1) - 0.4, -1.4))
            self._draw_bars(ax, after, kwargs)
        else:
            style = {"color": COLORS[0], "drawstyle": "steps-post"} | kwargs
            (self.line_,) = ax.plot(np.arange(len(after)), after, **style)
            # Half a charge more, so that the last step is visible.
            ax.set(ylim=ends, ylabel=label, xlim=(0, len(after) - 0.5), xlabel="charges")
            ax.xaxis.get_major_locator().set_params(integer=True)
        if math.isfinite(self.epsilon):
            style = {"color": COLORS[1], "linestyle": "--"}
            self.cap_ = (ax.axvline if as_bars else ax.axhline)(self.epsilon, **style)
            if legend:
                self._name_cap(ax, upright=as_bars)
        if not n_charges:
            where = {"ha": "center", "va": "center", "transform": ax.transAxes}
            ax.text(0.45, 0.4, "nothing charged yet", color="0.4", **where)
        self.ax_, self.figure_ = ax, ax.figure
        return self

    def _draw_bars(self, ax: Any, after: np.ndarray, style: dict[str, Any]) -> None:
        """Draw a labelled bar per charge, from the epsilon before to the epsilon after it."""
        where = np.arange(len(self.history))
        style = {"color": COLORS[0], "height": 0.6} | style
        self.bars_ = ax.barh(where, np.diff(after), left=after[:-1], **style)
        totals = self.history["epsilon_spent"]
        texts = [rounded_up(epsilon).replace("inf", "∞") for epsilon in totals]
        box = {"fc": "white", "ec": "none", "pad": 0.5}
        ax.bar_label(self.bars_, texts, padding=4, size=8, bbox=box)
        labels = [cut_short(label or "no label", _MOST_LETTERS) for label in self.history["label"]]
        ax.set_yticks(where, labels, fontsize="small")

    def _name_cap(self, ax: Any, *, upright: bool) -> None:
        """Write the cap to the left of an upright line, or above a level line."""
        if upright:
            where, offset, sides = (self.epsilon, -0.9), (-6, 0), ("right", "center")
        else:
            where, offset, sides = (0, self.epsilon), (6, 2), ("left", "bottom")
        style = {"textcoords": "offset points", "color": COLORS[1], "size": 9}
        text = f"cap: ε = {self.epsilon:g}"
        ax.annotate(text, where, offset, ha=sides[0], va=sides[1], **style)
