"""
Adult and COMPAS as tasks of fair classification, and the figures by which rules are judged.

Features are coded to [-1, 1] with public knowledge alone: ranges and caps of the numbers that are
written down here, and the lists of categories, which are taken as public.

Adult (32,561 people; income above 50K; groups: sex): age, years of education, hours a week,
logarithms of capital gain and loss, and one column a category of work class, marital status,
occupation, relationship, race and country. ``fnlwgt`` is a survey weight and is left out.

COMPAS (6,150 African-American and Caucasian people, no other filter; not arrested again within two
years; groups: race): age and its three public brackets, sex, degree of the charge, prior
offences up to 10 and juvenile ones up to 2. Of nine codings (raw counts, logarithms, square roots,
other caps, one-hot) this one gave logistic regression the best accuracy over ten splits: .672, the
others .667 to .673 (a one-hot coding with twice as many columns). COMPAS' own scores are left out.

Class 1 is the favourable one in both: an income above 50K, no new arrest. `disparate_impact` is the
ratio of the rates of the favourable decision, `adverse_impact` that of the other decision: the
lower one where that decision is the rarer, as on COMPAS.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
import pandas as pd
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import train_test_split

from skdpot.metrics import (
    demographic_parity_difference,
    disparate_impact,
    equalized_odds_difference,
)

DEFAULT_DATA = Path(__file__).resolve().parents[3] / "shared" / "data"
TEST_SHARE = 0.3
# Copies of the test rows that stand for a randomised rule: rates are right to half a percent.
N_COPIES = 100


@dataclass(frozen=True, eq=False)
class FairTask:
    """
    One split of one data set.

    Attributes
    ----------
    X, X_test : ndarray of shape (n, d)
        Features in [-1, 1].
    y, y_test : ndarray of shape (n,)
        Classes 0 and 1.
    groups, groups_test : ndarray of shape (n,)
        Names of the groups.
    """

    X: np.ndarray
    X_test: np.ndarray
    y: np.ndarray
    y_test: np.ndarray
    groups: np.ndarray
    groups_test: np.ndarray

    def judge(self, decisions: np.ndarray, scores: np.ndarray) -> dict[str, float]:
        """
        Return accuracy, area under the curve and fairness on the test rows.

        Parameters
        ----------
        decisions : ndarray of shape (n_test,)
            Probability of deciding 1: 0 or 1, or something between for a randomised rule. Such a
            rule is judged by its expectation: by `N_COPIES` copies of the test rows, of which the
            right share is decided 1. No random draw is involved.
        scores : ndarray of shape (n_test,)
            What the rule ranks people by.
        """
        randomised = ((decisions > 0) & (decisions < 1)).any()
        n_copies = N_COPIES if randomised else 1
        levels = (np.arange(n_copies) + 0.5) / n_copies
        decided = (decisions[:, np.newaxis] > levels).ravel().astype(int)
        y, groups = np.repeat(self.y_test, n_copies), np.repeat(self.groups_test, n_copies)
        return {
            "accuracy": float(np.mean(decided == y)),
            "auc": float(roc_auc_score(self.y_test, scores)),
            "disparate_impact": disparate_impact(decided, sensitive_features=groups),
            "adverse_impact": disparate_impact(decided, sensitive_features=groups, pos_label=0),
            "parity_difference": demographic_parity_difference(decided, sensitive_features=groups),
            "equalized_odds": equalized_odds_difference(y, decided, sensitive_features=groups),
        }


def load_task(name: str, folder: Path, *, group_feature: bool, seed: int) -> FairTask:
    """
    Load one split: 70 % for training, at random.

    Parameters
    ----------
    name : {"adult", "compas"}
        Data set.
    folder : Path
        Where ``adult.csv.gz`` and ``compas.csv.gz`` are.
    group_feature : bool
        Whether the group is one of the features.
    seed : int
        Of the split.
    """
    features, y, groups = _read(name, folder)
    if group_feature:
        indicator = 2.0 * (groups == np.unique(groups)[0]) - 1
        features = np.column_stack([features, indicator])
    split = train_test_split(features, y, groups, test_size=TEST_SHARE, random_state=seed)
    return FairTask(*split)


@cache
def _read(name: str, folder: Path) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return coded features without the group, classes and groups."""
    return DATA_SETS[name](pd.read_csv(folder / f"{name}.csv.gz", skipinitialspace=True))


def code_adult(table: pd.DataFrame) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Code Adult; see the head of this file."""
    numbers = [
        _scaled(table["age"], 17, 90),
        _scaled(table["education_num"], 1, 16),
        _scaled(table["hours_per_week"], 1, 99),
        _scaled(np.log1p(table["capital_gain"]), 0, np.log1p(99_999)),
        _scaled(np.log1p(table["capital_loss"]), 0, np.log1p(4_356)),
    ]
    categories = ["workclass", "marital_status", "occupation", "relationship", "race"]
    indicators = pd.get_dummies(table[[*categories, "native_country"]].astype(str))
    features = np.column_stack([*numbers, 2.0 * indicators.to_numpy() - 1])
    y = table["income"].str.contains(">50K").to_numpy().astype(int)
    return features, y, table["sex"].to_numpy(dtype=object)


def code_compas(table: pd.DataFrame) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Code COMPAS; see the head of this file."""
    table = table[table["race"].isin(["African-American", "Caucasian"])]
    juvenile = [f"juv_{kind}_count" for kind in ("fel", "misd", "other")]
    numbers = [
        _scaled(table["age"], 18, 70),
        _scaled(table["priors_count"], 0, 10),
        *(_scaled(table[column], 0, 2) for column in juvenile),
    ]
    indicators = [
        table["sex"] == "Male",
        table["c_charge_degree"] == "F",
        *(table["age_cat"] == f for f in ("Less than 25", "25 - 45", "Greater than 45")),
    ]
    features = np.column_stack([*numbers, *(2.0 * column - 1 for column in indicators)])
    y = (table["two_year_recid"] == 0).to_numpy().astype(int)
    return features, y, table["race"].to_numpy(dtype=object)


DATA_SETS: dict[str, Callable[[pd.DataFrame], tuple[np.ndarray, np.ndarray, np.ndarray]]] = {
    "adult": code_adult,
    "compas": code_compas,
}


def _scaled(values: pd.Series, low: float, high: float) -> pd.Series:
    """Clip to a public range and map it to [-1, 1]."""
    return 2 * (values.clip(low, high) - low) / (high - low) - 1
