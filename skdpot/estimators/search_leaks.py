"""What scikit-learn's searches reveal about private rows, however private every fit is."""

from dataclasses import dataclass
from typing import Any

import pandas as pd
from sklearn.model_selection import ParameterGrid, check_cv

from skdpot._utils.pages import html_card
from skdpot.privacy.provenance import parts_of

__all__ = ["SearchLeaks", "search_leaks"]


@dataclass(frozen=True, kw_only=True)
class SearchLeaks:
    """What a search charges, and what it shows that nothing pays for.

    Parameters
    ----------
    search : str
        Its class.
    n_candidates : int or None
        Number of candidates, None if it is not known beforehand.
    n_fits : int or None
        Number of fits that a budget is charged for, the refit included.
    has_budget : bool
        Whether all private parts draw on a budget.
    stops : bool
        Whether a refused fit stops the search.
    facts : tuple of str
        What is not private, and what to do.
    """

    search: str
    n_candidates: int | None
    n_fits: int | None
    has_budget: bool
    stops: bool
    facts: tuple[str, ...]

    def to_frame(self) -> pd.DataFrame:
        """Return one row with a column a field.

        Returns
        -------
        DataFrame
        """
        return pd.DataFrame([vars(self) | {"facts": " ".join(self.facts)}])

    def __str__(self) -> str:
        """Return the facts, one a line."""
        return "\n".join((f"{self.search}: {self._fits}", *(f"- {fact}" for fact in self.facts)))

    def _repr_html_(self) -> str:
        """Return the facts as a card for notebooks."""
        rows = [(str(number), fact) for number, fact in enumerate(self.facts, start=1)]
        return html_card(f"What {self.search} reveals", self._fits, rows)

    @property
    def _fits(self) -> str:
        return "an unknown number of fits" if self.n_fits is None else f"{self.n_fits} fits"


def search_leaks(search: Any) -> SearchLeaks:
    """Say what `GridSearchCV` or its like charges and reveals, without touching any data.

    Parameters
    ----------
    search : GridSearchCV, RandomizedSearchCV or similar
        With a private estimator, fitted or not.

    Returns
    -------
    SearchLeaks
        Prints as text and shows as a card.

    Raises
    ------
    TypeError
        If it is no search.

    See Also
    --------
    PrivateSearchCV : The search whose choice is paid for.

    Examples
    --------
    >>> from sklearn.model_selection import GridSearchCV
    >>> from skdpot import DPSlicedFlowSampler
    >>> from skdpot.estimators.search_leaks import search_leaks
    >>> from skdpot.mechanisms import Sketch
    >>> sampler = DPSlicedFlowSampler(Sketch())
    >>> leaks = search_leaks(GridSearchCV(sampler, {"mechanism__n_bins": [8, 16, 32]}))
    >>> leaks.n_fits, leaks.has_budget, leaks.stops
    (16, False, False)
    >>> print(leaks)
    GridSearchCV: 16 fits
    - best_params_, best_index_, ...
    """
    if not (hasattr(search, "estimator") and hasattr(search, "error_score")):
        raise TypeError(
            f"search_leaks takes a search of scikit-learn such as GridSearchCV, got "
            f"{type(search).__name__}."
        )
    n_candidates = _n_candidates(search)
    folds = _n_folds(search.cv)
    n_fits = (
        None if n_candidates is None or folds is None else n_candidates * folds + bool(search.refit)
    )
    parts = parts_of(search.estimator)
    has_budget = bool(parts) and all(part.budget is not None for part in parts)
    stops = search.error_score == "raise"
    return SearchLeaks(
        search=type(search).__name__,
        n_candidates=n_candidates,
        n_fits=n_fits,
        has_budget=has_budget,
        stops=stops,
        facts=tuple(_facts(n_candidates, n_fits, has_budget, stops)),
    )


def _facts(n_candidates: int | None, n_fits: int | None, has_budget: bool, stops: bool) -> Any:
    many = "" if n_candidates is None else f" among {n_candidates} candidates"
    yield (
        f"best_params_, best_index_, best_score_ and cv_results_ are not private: the choice{many} "
        "rests on scores of private rows without noise. One changed row can change the choice, "
        "and with it the published model, at any epsilon of the fits. Score on public rows "
        "(cv=[(private_rows, public_rows)]), or use PrivateSearchCV."
    )
    fits = "each of the fits" if n_fits is None else f"each of the {n_fits} fits"
    if has_budget:
        yield f"The budget is charged for {fits}, also of candidates that are not chosen."
    else:
        yield (
            f"Without a shared PrivacyBudget {fits} spends its own epsilon, and nobody adds them "
            "up: privacy_spent_ of best_estimator_ states the last fit alone. Pass budget=."
        )
    if not stops:
        yield (
            "error_score is not 'raise': when the budget is spent, scikit-learn turns the "
            "BudgetExceededError of a fit into a score of nan and goes on, so that the choice is "
            "made among those that were fitted before. Pass error_score='raise'."
        )


def _n_candidates(search: Any) -> int | None:
    if hasattr(search, "param_grid"):
        return len(ParameterGrid(search.param_grid))
    if hasattr(search, "n_iter"):
        given = search.param_distributions
        lists = given if isinstance(given, list) else [given]
        if any(hasattr(values, "rvs") for one in lists for values in one.values()):
            return int(search.n_iter)
        return min(int(search.n_iter), len(ParameterGrid(lists)))
    return None


def _n_folds(cv: Any) -> int | None:
    try:
        return int(check_cv(cv).get_n_splits())
    except (TypeError, ValueError):
        return None
