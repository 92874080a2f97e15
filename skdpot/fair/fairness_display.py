"""A display of the scores of a classifier in each group."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.utils.validation import check_consistent_length, column_or_1d

from skdpot._utils.finite import as_finite
from skdpot._utils.panels import COLORS, add_legend_beside, check_choice, single_axes
from skdpot._utils.parameters import binary_responses
from skdpot.fair.notions import NOTIONS
from skdpot.fair.rates import as_labels, find_positive, group_codes, rate_ratios


@dataclass(kw_only=True, eq=False, repr=False)
class FairnessDisplay:
    """Histograms of the scores of a binary classifier, one per group.

    Create one with `from_estimator` or `from_predictions`. Parameters are stored as attributes.

    Parameters
    ----------
    scores, groups : ndarray of shape (n,)
        Score of the favorable class and group of each row; at most seven groups, since more colors
        cannot be told apart.
    classes : ndarray of shape (n,), optional
        True class of each row; if given, there is one histogram per group and class.
    threshold : float, default=0.5
        Score above which the decision is favorable.
    metrics : dict of str to float, optional
        Metrics for the title.
    name, group_name : str, optional
        Name of the classifier, for the title, and title of the legend.
    score_name : str, default="score"
        Label of the horizontal axis.

    Attributes
    ----------
    ax_, figure_ : matplotlib Axes and Figure
        With classes, the histograms of the first class are hollow and dashed.
    histograms_ : dict
        Artists of the histogram of each group or, with classes, of each (group, class).
    line_ : matplotlib Line2D
        The threshold.

    Privacy
    -------
    All rows are treated as public: the histograms have no noise.

    Examples
    --------
    >>> from sklearn.linear_model import LogisticRegression
    >>> from skdpot.datasets import make_biased_classification
    >>> from skdpot.metrics import FairnessDisplay
    >>> X, y, group = make_biased_classification(2000, random_state=0)
    >>> model = LogisticRegression().fit(X[:1000], y[:1000])
    >>> display = FairnessDisplay.from_estimator(
    ...     model, X[1000:], y[1000:], sensitive_features=group[1000:]
    ... )
    >>> sorted(display.metrics)
    ['accuracy', 'disparate impact']
    """

    scores: np.ndarray
    groups: np.ndarray
    classes: np.ndarray | None = None
    threshold: float = 0.5
    metrics: dict[str, float] | None = None
    name: str | None = None
    group_name: str | None = None
    score_name: str = "score"

    @classmethod
    def from_estimator(
        cls,
        estimator: Any,
        X: Any,
        y: Any,
        *,
        response_method: str = "auto",
        pos_label: Any = None,
        threshold: float | None = None,
        **kwargs: Any,
    ) -> Self:
        """Draw the scores that a fitted classifier gives to rows; return the display.

        Parameters
        ----------
        estimator : estimator
            Fitted binary classifier, or pipeline that ends in one.
        X, y : array-like of shape (n, d), (n,)
            **Public** rows to score, and their true classes.
        response_method : {"auto", "predict_proba", "decision_function"}, default="auto"
            Where the scores come from; "auto" prefers probabilities.
        pos_label : label, optional
            The favorable class; by default ``estimator.pos_label_`` or ``estimator.classes_[1]``.
        threshold : float, optional
            Score above which the decision is favorable; by default 0.5 for probabilities and 0
            for a decision function.
        **kwargs : dict
            For `from_predictions`, such as `fairness` and `ax`; `sensitive_features` is required.
            The default title is the name of the class.

        Raises
        ------
        AttributeError, ValueError
            If the estimator lacks the method or is not a binary classifier.
        """
        methods = ("auto", "predict_proba", "decision_function")
        check_choice("response_method", response_method, methods)
        if pos_label is None:
            pos_label = getattr(estimator, "pos_label_", None)
        scores, positive, method = binary_responses(
            estimator, X, response_method, pos_label, return_response_method_used=True
        )
        is_probability = method == "predict_proba"
        kind = "predicted probability of" if is_probability else "decision function for"
        of_estimator = {
            "pos_label": positive,
            "threshold": 0.5 * is_probability if threshold is None else threshold,
            "name": type(estimator).__name__,
            "score_name": f"{kind} class {positive}",
        }
        return cls.from_predictions(y, scores, **(of_estimator | kwargs))

    @classmethod
    def from_predictions(
        cls,
        y_true: Any,
        y_score: ArrayLike,
        *,
        sensitive_features: Any,
        fairness: str = "demographic_parity",
        pos_label: Any = None,
        reference: Any = None,
        threshold: float = 0.5,
        name: str | None = None,
        score_name: str = "score",
        **kwargs: Any,
    ) -> Self:
        """Draw scores; return the display.

        Parameters
        ----------
        y_true, y_score : array-like of shape (n,)
            True classes, two different labels, and scores of the favorable class: probabilities,
            or any numbers with a `threshold`.
        sensitive_features : array-like of shape (n,)
            Groups. The name of a pandas or polars column is shown in the legend.
        fairness : str, default="demographic_parity"
            A notion of `FairPrivateClassifier`. "demographic_parity": one histogram per group, with
            the disparate impact in the title. Others: one per group and true class, with the ratios
            of the rates that the notion compares.
        pos_label : label, optional
            The favorable class; 1 when the labels are 0 and 1 or −1 and 1.
        reference : label, optional
            The group in the denominator of the ratios; see `disparate_impact`.
        threshold, name, score_name
            As in `FairnessDisplay`.
        **kwargs : dict
            For `plot`, such as `ax`.

        Raises
        ------
        ValueError
            If the columns are not usable, or there is a single group or more than seven.
        """
        check_choice("fairness", fairness, tuple(NOTIONS))
        classes = as_labels(y_true, "y_true")
        groups = as_labels(sensitive_features, "sensitive_features")
        scores = as_finite(column_or_1d(y_score), "y_score")
        check_consistent_length(classes, scores, groups)
        if len(np.unique(classes)) > 2:
            raise ValueError("y_true holds three or more classes; only two can be drawn.")
        positive = find_positive(pos_label, y_true=classes)
        selected, truth = scores > threshold, classes == positive
        metrics = {"accuracy": float(np.mean(selected == truth))}
        by_group = {"sensitive_features": groups, "reference": reference}
        notion = NOTIONS[fairness]
        ratios = rate_ratios(notion, truth, selected, **by_group)
        if notion.given_class:
            labels = {y == positive: y for y in np.unique(classes).tolist()}
            metrics |= {f"{notion.ratio_name} ({labels[y]})": float(r) for y, r in ratios.items()}
        else:
            metrics[notion.ratio_name] = float(ratios.iloc[0])
        group_name = getattr(sensitive_features, "name", None)
        return cls(
            scores=scores,
            groups=groups,
            classes=classes if notion.given_class else None,
            threshold=threshold,
            metrics=metrics,
            name=name,
            group_name=None if group_name is None else str(group_name),
            score_name=score_name,
        ).plot(**kwargs)

    def plot(
        self,
        ax: Any = None,
        *,
        name: str | None = None,
        bins: int | ArrayLike = 40,
        legend: bool = True,
        **kwargs: Any,
    ) -> Self:
        """Draw the histograms, the threshold, the title and the legend; return the display.

        Parameters
        ----------
        ax : matplotlib Axes, optional
            Axes to draw on; by default new ones, with the legend beside them.
        name : str, optional
            Name for the title; the stored one by default.
        bins : int or array-like, default=40
            Number of bins, shared by all histograms, or their edges. Each histogram has area one.
        legend : bool, default=True
            Whether to draw the legend.
        **kwargs : dict
            For ``Axes.hist``.
        """
        beside, ax = ax is None, single_axes(ax, (8, 4.8))
        within = self.scores.min() >= 0 and self.scores.max() <= 1
        edges = np.histogram_bin_edges(self.scores, bins, range=(0, 1) if within else None)
        self.histograms_ = {}
        for key, rows, style in self._cells():
            style = {"histtype": "stepfilled", "density": True, "linewidth": 1.5} | style | kwargs
            *_, self.histograms_[key] = ax.hist(self.scores[rows], edges, **style)
        self.line_ = ax.axvline(self.threshold, color="black", linestyle=":", label="threshold")
        ax.set(xlabel=self.score_name, ylabel="density")
        ax.margins(x=0)
        figures = ", ".join(f"{key} = {value:.2f}" for key, value in (self.metrics or {}).items())
        title = "\n".join(line for line in (self.name if name is None else name, figures) if line)
        ax.set_title(title, fontsize="medium", wrap=True)
        self.ax_, self.figure_ = ax, ax.figure
        if legend:
            add_legend_beside(ax, beside)
            ax.get_legend().set_title(self.group_name)
        return self

    def _cells(self) -> Iterator[tuple[Any, np.ndarray, dict[str, Any]]]:
        """Yield the key, the rows and the style of each histogram that has rows."""
        names, codes = group_codes(self.groups)
        if len(names) > len(COLORS):
            raise ValueError(
                f"{len(names)} groups occur, and only {len(COLORS)} colors can be told apart; "
                "merge small groups."
            )
        known = [None] if self.classes is None else np.unique(self.classes).tolist()
        for (code, group), y in product(enumerate(names.tolist()), known):
            rows = (codes == code) & (True if y is None else self.classes == y)
            style: dict[str, Any] = {"edgecolor": COLORS[code], "label": str(group)}
            if y == known[-1]:
                style["facecolor"] = (COLORS[code], 0.35)
            else:
                style |= {"fill": False, "linestyle": "--"}
            if y is None:
                yield group, rows, style
            elif rows.any():
                yield (group, y), rows, style | {"label": f"{group}, class {y}"}
