"""Every noise that a fit draws is in the event that it was charged, and as often as it is drawn.

Whatever module asks for noise is watched, and every release names what was charged. One that nobody
accounted for shows as a scale that the event does not know, one that is made too often as a number
of draws that it does not.
"""

import sys
import warnings
from collections import Counter

import numpy as np
import pytest
import torch
from sklearn.base import clone

from skdpot import FairPrivateClassifier, PrivacyBudget, PrivateSearchCV
from skdpot.exceptions import PrivacyWarning
from skdpot.preprocessing import TableSchema
from skdpot.privacy.events import GaussianEvent
from skdpot.privacy.selection import ThresholdedCountsEvent
from skdpot.release.release import first_difference, record_releases
from tests.contract.fits import BINARY, FITS, KNOWN, TABLE, TABLES, N, X, classifier

# Calls for noise a step of each phase after the bounds.
CALLS = dict.fromkeys(
    (
        "sketch", "sketch, classes", "flow", "flow, resample", "flow, resample, float",
        "flow, presample", "generator", "generator, smoothing", "generator, gradient",
        "autoencoder", "autoencoder, prior", "autoencoder, parity", "classifier, odds, ranks",
        "regressor, ranks", "paths", "distance",
    ),
    [1],
) | {
    "classifier, threshold": [1, 1, 1, 1, 1],
    "regressor": [1, 1],
    "paths, mfld": [1, 1],
    "paths, mfld, rough": [1, 1],
    "paths, mfld, mean": [4, 1, 1],
    "paths, mfld, kmeans": [4, 1, 1],
    "scaler": [],
}  # fmt: skip


@pytest.fixture
def drawn(monkeypatch):
    """The scale of every noise that anybody asks for."""
    scales = []
    for module in [m for name, m in sys.modules.items() if name.split(".")[0] == "skdpot"]:
        for name in ("lattice_noise", "gaussian_noise"):
            if (draw := vars(module).get(name)) is not None:

                def spy(sigma, *args, draw=draw, **options):
                    scales.append(sigma)
                    return draw(sigma, *args, **options)

                monkeypatch.setattr(module, name, spy)
    return scales


@pytest.mark.filterwarnings("ignore::skdpot.exceptions.PrivacyWarning")
@pytest.mark.filterwarnings("ignore::skdpot.exceptions.FairnessWarning")
@pytest.mark.parametrize("case", CALLS)
def test_every_noise_is_charged_as_often_as_it_is_drawn(case, drawn):
    (estimator, given, _), calls = FITS[case], CALLS[case]
    # Much epsilon, so that bounds are found; everything is random, and nothing depends on it.
    with record_releases() as releases:
        fitted = clone(estimator).set_params(epsilon=8.0).fit(X, **given)
    phases = fitted.privacy_spent_.event.phases
    assert releases
    assert all(event in phases for release in releases for event in release.event.phases)
    bounds, others = phases[: len(phases) - len(calls)], phases[len(phases) - len(calls) :]
    private = getattr(estimator, "bounds", getattr(estimator, "target_bounds", "private"))
    has_bounds = private == "private" and not isinstance(estimator, FairPrivateClassifier)
    assert bool(bounds) == has_bounds
    expected = Counter()
    for event in bounds:
        assert type(event) is GaussianEvent
        # A record is in one cell of the histogram of each feature: 2 d counts move.
        expected[event.sigma] += round(event.sensitivity**2 / 2)
    for event, count in zip(others, calls, strict=True):
        expected[event.sigma] += event.n_steps * count
    found = Counter(drawn)
    assert {f"{s:.9g}": n for s, n in found.items()} == {f"{s:.9g}": n for s, n in expected.items()}


@pytest.mark.filterwarnings("ignore::skdpot.exceptions.PrivacyWarning")
@pytest.mark.filterwarnings("ignore::skdpot.exceptions.FairnessWarning")
@pytest.mark.parametrize("case", CALLS)
def test_global_seeds_do_not_repeat_the_noise(case):
    """Only random_state makes noise reproducible, and then it warns."""
    estimator, given, _ = FITS[case]
    values = []
    for _ in range(2):
        np.random.seed(0)  # noqa: NPY002, TID251
        torch.manual_seed(0)  # noqa: TID251
        with record_releases() as releases:
            clone(estimator).fit(X, **given)
        values.append([release.value for release in releases])
    first, second = (next(iter(releases), None) for releases in values)
    assert first is not None
    assert first_difference(first, second) is not None


# An estimator, and the names of the columns that it is fitted on.
COLUMNS = {name: (estimator, list(TABLE)) for name, estimator in TABLES.items()} | {
    "synthesizer, two columns": (TABLES["synthesizer, nothing known"], ["kind", "flag"]),
    "synthesizer, one column": (TABLES["synthesizer, nothing known"], ["code"]),
}


@pytest.mark.filterwarnings("ignore::skdpot.exceptions.PrivacyWarning")
@pytest.mark.parametrize("case", COLUMNS)
def test_every_noise_of_a_table_is_charged(case, drawn):
    """What the schema leaves open, then tables of counts, and sums of how far these are off."""
    estimator, names = COLUMNS[case]
    schema = None if estimator.schema is None else TableSchema([KNOWN[name] for name in names])
    with record_releases() as releases:
        fitted = clone(estimator).set_params(epsilon=8.0, schema=schema).fit(TABLE[names])
    phases = fitted.privacy_spent_.event.phases if schema is None or "synth" in case else ()
    assert all(event in phases for release in releases for event in release.event.phases)
    tables = [release for release in releases if release.kind in ("marginals", "misfits")]
    kinds = ["marginals", "misfits", "marginals", "misfits", "marginals"][: 4 * len(names) - 3]
    kinds = kinds if "synth" in case else []
    before, after = phases[: len(phases) - len(kinds)], phases[len(phases) - len(kinds) :]
    expected = Counter()
    for event in before:
        # A record is in one cell of the histogram of each column: two counts move.
        histograms = event.n_columns if isinstance(event, ThresholdedCountsEvent) else None
        expected[event.sigma] += histograms or round(event.sensitivity**2 / 2)
    for event, kind in zip(after, kinds, strict=True):
        if not tables or tables[0].kind != kind:  # a tree that gains nothing is not counted
            continue
        release = tables.pop(0)
        if kind == "misfits":
            scales = [release.sigma]
            squared_mu = 4 * len(release.facts["marginals"]) / scales[0] ** 2
        else:
            scales = list(release.sigma)
            squared_mu = sum(2 / sigma**2 for sigma in scales)
        expected.update(scales)
        assert squared_mu == pytest.approx(event.sensitivity**2 / event.sigma**2)
    assert not tables
    found = Counter(drawn)
    assert {f"{s:.9g}": n for s, n in found.items()} == {f"{s:.9g}": n for s, n in expected.items()}
    assert bool(drawn) == (case != "encoder, all known")


CHARGED = (
    {name: (FITS[name][0], X, FITS[name][1]) for name in CALLS}
    | {name: (estimator, TABLE[names], {}) for name, (estimator, names) in COLUMNS.items()}
    | {
        "search": (
            PrivateSearchCV(
                classifier(classes=[0, 1]), {"mechanism__learning_rate": [0.1, 0.2]}, n_trials=1
            ),
            X,
            {"y": BINARY["y"]},
        )
    }
)
del CHARGED["encoder, all known"]  # for nothing


@pytest.mark.filterwarnings("ignore::skdpot.exceptions.PrivacyWarning")
@pytest.mark.filterwarnings("ignore::skdpot.exceptions.FairnessWarning")
@pytest.mark.parametrize("case", CHARGED)
def test_a_delta_of_one_over_n_is_warned_of_before_the_charge(case):
    estimator, rows, given = CHARGED[case]
    budget = PrivacyBudget(20.0, delta=1 / N)
    warned = clone(estimator).set_params(epsilon=8.0, delta=1 / N, budget=budget)
    with warnings.catch_warnings():
        warnings.filterwarnings("error", r".*delta = 0.0025 is not below one over .* \(400\)")
        with pytest.raises(PrivacyWarning, match="Choose a delta well below 0.003"):
            warned.fit(rows, **given)
    assert budget.history().empty
    with warnings.catch_warnings():  # nothing is said of a smaller one
        warnings.filterwarnings("error", ".*is not below one over")
        warned.set_params(delta=0.99 / N, budget=None).fit(rows, **given)
