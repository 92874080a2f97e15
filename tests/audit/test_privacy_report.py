"""The privacy report: complete, right, self-contained, and private itself.

Fits and audits draw secret noise: margins around them hold for false alarms of less than 1e-6.
"""

import dataclasses
import html
import json
import math
import re
from functools import cache
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
from scipy.stats import norm
from sklearn.decomposition import PCA
from sklearn.ensemble import RandomForestClassifier
from sklearn.exceptions import NotFittedError
from sklearn.feature_selection import SelectKBest
from sklearn.frozen import FrozenEstimator
from sklearn.kernel_approximation import Nystroem
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, StandardScaler

from skdpot import DPTableSynthesizer, PrivacyBudget, PrivateScaler, PrivateSearchCV, SlicedSketch
from skdpot.audit import (
    part_audits,
    privacy_report,
    report_membership,
    report_utility,
    synthetic_rows,
)
from skdpot.audit.report_words import beside_claim, meaning_of, one_in, percent_at_most
from skdpot.preprocessing import CategoricalColumn, DatetimeColumn, TableSchema
from skdpot.privacy.events import GaussianEvent, NonPrivateEvent, Relation
from skdpot.privacy.gdp import gdp_mu
from skdpot.privacy.statement import PrivacySpent
from tests.contract import fits
from tests.flat_options import flow_sampler, private_distance

# Few rows, so that fits take no time: they warn that noise hides much.
pytestmark = [
    pytest.mark.filterwarnings("ignore::skdpot.exceptions.PrivacyWarning"),
    pytest.mark.filterwarnings("ignore::skdpot.exceptions.NotPrivateWarning"),
    pytest.mark.filterwarnings("ignore::skdpot.exceptions.FairnessWarning"),
]

RNG = np.random.default_rng(0)
X, Y, BOUNDS = fits.X, fits.BINARY, fits.BOX
X_PUBLIC, Y_PUBLIC = X[:120].copy(), Y[:120]  # rows that might as well be somebody else's
N = len(X)


def sampler(**options):
    return flow_sampler(**({"n_steps": 10} | BOUNDS | options))


def sketch(**options):
    return SlicedSketch(**BOUNDS | options).fit(X)


# Fits of the contract suites, those of one class of releases each, and some that are not there.
SHARED = (
    *("sketch, box", "flow, classes", "generator", "autoencoder", "autoencoder, parity"),
    *("classifier", "regressor", "distance", "contribution", "paths", "scaler"),
)
OWN = {
    "public": lambda: fits.autoencoder(private=False).fitted(),
    "triangle": lambda: private_distance("triangle").fit(X),
    "pipeline": lambda: make_pipeline(PrivateScaler(budget=PrivacyBudget(2.0)), sampler()).fit(X),
    "refitted search": lambda: PrivateSearchCV(
        sampler(), {}, n_trials=2, refit=True, score_on="release"
    ).fit(X),
}


@pytest.fixture(autouse=True)
def small_forests(monkeypatch):
    """How well a forest of hundreds of trees attacks is asked of the attacks."""

    def forest(n_estimators, **given):
        return RandomForestClassifier(9, **given)

    for module in (synthetic_rows, report_utility):
        monkeypatch.setattr(module, "RandomForestClassifier", forest)


@cache
def fit_of(name):
    if name in OWN:
        return OWN[name]()
    return fits.FITS[name].fitted()


def words_of(report):
    """Return the words of a page, whose tags are closed in order."""
    page, still_open = report.to_html(), []
    for closes, tag in re.findall(r"<(/?)([a-z][a-z0-9]*)", page):
        if closes:
            assert still_open.pop() == tag
        elif tag not in ("meta", "img", "br"):
            still_open.append(tag)
    assert not still_open
    bare = re.sub(r"<style.*?</style>|<[^>]*>", "", page, flags=re.DOTALL)
    return re.sub(r"\s+", " ", html.unescape(bare))


@pytest.fixture(scope="module")
def fitted():
    budget = PrivacyBudget(3.0)
    budget.spend(GaussianEvent(sigma=20.0, sensitivity=1.0), label="<script>alert(1)</script>&")
    return sampler(conditional=True, budget=budget).fit(X, Y)


@pytest.fixture(scope="module")
def report(fitted):
    return privacy_report(fitted, X_PUBLIC, y_holdout=Y_PUBLIC, n_canaries=100, random_state=0)


# The page.


@pytest.mark.slow
def test_a_page_needs_nothing_else_and_escapes_what_it_is_given(report, tmp_path):
    figures = plt.get_fignums()
    text = report.to_html(tmp_path / "report.html")
    assert (tmp_path / "report.html").read_text(encoding="utf-8") == text
    assert report._repr_html_() in text
    assert "&lt;script&gt;alert(1)&lt;/script&gt;&amp;" in text
    bare = re.sub(r"base64,[A-Za-z0-9+/=]+", "", text)
    assert not re.search(
        r"<(script|link|iframe|object|form)|<[^>]* on\w+=|http|@import|url\(", bare
    )
    addresses = re.findall(r'(?:src|href)="([^"]*)"', bare)
    assert [address.partition("/")[0] for address in addresses] == ["data:image"] * 2  # pictures
    assert len(re.findall(r'<img [^>]*alt="[^"]', bare)) == 2
    assert plt.get_fignums() == figures


@pytest.mark.slow
def test_pictures_are_drawn_in_the_style_of_the_caller(report):
    """A style that lays figures out by itself would warn of a figure that is laid out by hand."""
    with plt.style.context("skdpot.pictures"):
        assert "data:image/png" in report._repr_html_()


def test_facts_are_on_the_page_and_values(report, fitted):
    spent, text = fitted.privacy_spent_, words_of(report)
    assert all(assumption[1:] in text for assumption in spent.assumptions)
    words = (spent.mechanism, f"{spent.sigma:.4g}", "no proof of privacy", "1 in 100,000")
    assert all(word in text for word in (*words, "too few others"))
    facts = json.loads(json.dumps(report.to_dict()))
    assert (facts["estimator"], facts["n_samples"]) == ("DPSlicedFlowSampler", N)
    assert (facts["spent"]["epsilon"], facts["spent"]["relation"]) == (1.0, "replace_one")
    (budget,), (audit,) = facts["budgets"], facts["audits"]
    assert (budget["epsilon"], budget["spent"]) == (3.0, fitted.budget.epsilon_spent())
    assert [charge["label"] for charge in budget["history"]][1:] == ["DPSlicedFlowSampler"]
    assert (audit["epsilon"], audit["n_canaries"], audit["refuted"]) == (1.0, 100, False)
    assert (len(facts["membership"]["attacks"]), len(facts["utility"])) == (5, 6)
    assert facts["membership"]["share"]["expected"] == pytest.approx(2 / 3)
    value = report.to_frame().set_index(["section", "fact"])["value"]
    assert value["spent", "epsilon"] == 1.0
    assert value["budgets", "1.history 2.label"] == "DPSlicedFlowSampler"


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 8.0])
def test_meaning(epsilon):
    mu = gdp_mu(epsilon, 1e-5)
    event = GaussianEvent(sigma=1.0, sensitivity=mu)
    spent = PrivacySpent(epsilon, 1e-5, Relation.REPLACE_ONE, event, 1.0, mu, ())
    bound = (math.expm1(epsilon) + 2e-5) / (math.exp(epsilon) + 1)
    tpr = min(0.01 * math.exp(epsilon) + 1e-5, 1 - math.exp(-epsilon) * (0.99 - 1e-5))
    assert vars(meaning_of(spent)) == pytest.approx(
        {
            "odds_factor": math.exp(epsilon),
            "right_at_most": (1 + bound) / 2,
            "right_by_noise": norm.cdf(mu / 2),
            "advantage_bound": bound,
            "tpr_bound": tpr,
        }
    )
    none = meaning_of(dataclasses.replace(spent, epsilon=math.inf, event=NonPrivateEvent()))
    assert none.right_at_most == none.right_by_noise == 1.0
    assert meaning_of(dataclasses.replace(spent, epsilon=1e4)).odds_factor == math.inf


def test_figures_are_rounded_to_the_safe_side_and_told_apart():
    assert [percent_at_most(p) for p in (0.50001, 0.5, 1.0)] == ["50.1 %", "50.0 %", "100.0 %"]
    assert [one_in(delta) for delta in (1e-5, 3e-4)] == ["1 in 100,000", "1 in 3,333"]
    assert beside_claim(5.099, math.inf) == ("5.09", "∞")
    for shown, claimed in ((2.999, 3.0), (1.00049, 1.0), (1.234567, 1.23456), (3.0, 2.9999999)):
        low, claim = map(float, beside_claim(shown, claimed))
        assert low <= shown
        assert claim >= claimed
        assert (claim < low) == (claimed < shown)


# Warnings.


# Parameters of a sketch with a lasting budget, or what makes a fit; and what a report warns of.
WARNED = {
    "no budget": ({"budget": None}, "caution: No budget counts"),
    "no cap": ({"budget": PrivacyBudget(np.inf)}, "caution: no cap", "caution: temporary file"),
    "no noise": ({"epsilon": np.inf, "budget": None}, "stop: No privacy"),
    "large epsilon": ({"epsilon": 20.0}, "caution: so large"),
    "small delta": ({"delta": 0.09 / N},),
    "large delta": ({"delta": 0.2 / N}, "caution: far below 1/n"),
    "delta of 1/n": ({"delta": 1.01 / N}, f"stop: 1/n for n = {N}"),
    "seed": ({"random_state": 1}, "stop: repeated"),
    "no claim": (lambda budget: fit_of("triangle"), "stop: No privacy"),
    "floating noise": (
        lambda budget: sampler(mechanism="presample", noise="float", budget=budget).fit(X),
        "caution: floating-point",
    ),
    "unknown size": (lambda budget: PrivateScaler(budget=budget).fit(X), "caution: does not keep"),
    "two budgets": (
        lambda budget: make_pipeline(
            PrivateScaler(budget=PrivacyBudget(2.0)), sampler(bounds=(-9, 9), budget=budget)
        ).fit(X),
        "caution: Several budgets",
        "caution: temporary file",
    ),
}


@pytest.mark.parametrize("case", WARNED)
def test_what_is_warned_of(case, tmp_path):
    make, *expected = WARNED[case]
    budget = PrivacyBudget(100.0, 0.01, ledger=tmp_path / "ledger.sqlite")
    fitted = make(budget) if callable(make) else sketch(**{"budget": budget} | make)
    made = privacy_report(fitted, audit=False)
    found = [(caution.level, caution.text) for caution in made.cautions]
    for (level, text), due in zip(found, expected, strict=True):
        assert due.startswith(f"{level}: ")
        assert due.partition(": ")[2] in text
    text = words_of(made).replace("\xa0", " ")
    assert all(caution in text for _, caution in found)
    assert ("Do not publish before" in text) == any(level == "stop" for level, _ in found)


@pytest.mark.parametrize(
    "steps",
    [
        lambda: (StandardScaler(), sampler(bounds=(-9, 9))),
        lambda: (PrivateScaler(), LogisticRegression()),
        lambda: (PrivateScaler(), make_pipeline(PCA(2), sampler(bounds=(-9, 9)))),
        lambda: (  # what learns nothing or was fitted before
            FunctionTransformer(),
            FrozenEstimator(StandardScaler().fit(X_PUBLIC)),
            sampler(bounds=(-9, 9)),
        ),
    ],
)
def test_a_part_that_learns_without_noise_is_no_privacy(steps):
    made = privacy_report(make_pipeline(*steps()).fit(X, Y), audit=False)
    (name,) = made.silent
    stops = [caution.text for caution in made.cautions if caution.level == "stop"]
    learns = [] if name == "FrozenEstimator" else [name]
    assert [text.split(" was fitted")[0] for text in stops] == learns
    text = words_of(made)
    assert "What was released is differentially private" not in text
    assert f"{' + '.join(made.parts)} alone" in text
    assert made.to_dict()["silent"] == [name]


# It touches nothing private, and spends nothing.


def test_no_private_value_no_seed_and_no_charge(tmp_path):
    secret = X.copy()
    secret[7] = [0.123456789, -0.987654321, 0.555444333]
    budget = PrivacyBudget(100.0, ledger=tmp_path / "ledger.sqlite")
    seeded = sampler(bounds=(-9, 9), budget=budget, random_state=987654321)
    pipeline = make_pipeline(PrivateScaler(budget=budget), seeded).fit(secret)
    before = len(budget.history())
    made = privacy_report(pipeline, X_PUBLIC, n_canaries=100, confidence=0.9)
    assert len(budget.history()) == before
    for output in (made.to_html(), str(made.to_dict()), made.to_frame().to_string(), repr(made)):
        assert not any(value in output for value in ("0.12345", "0.98765", "0.55544", "987654321"))
    assert made.parts == ("PrivateScaler", "DPSlicedFlowSampler")
    assert [part.name for part in made.audits] == list(made.parts)
    assert made.releases[0].startswith("PrivateScaler: ")
    # By copies without the seed; both bounds hold together.
    assert [part.result.confidence for part in made.audits] == pytest.approx([0.95, 0.95])


@pytest.mark.slow
def test_members_are_attacked_only_if_they_are_given(monkeypatch, fitted):
    seen, original = [], report_membership.synthetic_membership

    def spy(source, members, holdout, **options):
        seen.append((source, members))
        return original(source, members, holdout, **options)

    monkeypatch.setattr(report_membership, "synthetic_membership", spy)
    made = privacy_report(fitted, X_PUBLIC, y_holdout=Y_PUBLIC, audit=False)
    ((source, members),) = seen
    assert source is not fitted
    assert source.budget is None
    assert {tuple(row) for row in members} <= {tuple(row) for row in X_PUBLIC}
    assert not made.membership.of_members
    assert "No private record was read" in words_of(made)

    made = privacy_report(fitted, X_PUBLIC, X_members=X, audit=False)
    assert seen[1] == (fitted, X)
    assert made.membership.of_members
    assert made.cautions[0].level == "stop"
    assert made.to_dict()["cautions"][0]["text"].startswith("This report is not private")
    head = made.to_html().split("<section>")[0]
    assert "This report is not private" in head
    assert 'class="box good"' not in head
    assert "No private record was read" not in words_of(made)


def test_a_ledger_is_read_once_and_may_be_gone(tmp_path):
    budget = PrivacyBudget(9.0, ledger=tmp_path / "ledger.sqlite")
    fits = [sketch(budget=budget) for _ in range(3)]
    assert "3 charges" in words_of(privacy_report(fits[0], audit=False))
    Path(budget.ledger).unlink()
    made = privacy_report(fits[0], audit=False)
    assert made.budgets[0].spent is None
    assert "The ledger could not be read" in words_of(made)
    assert made.to_dict()["budgets"][0]["history"] == []


# The audit.


def test_what_an_audit_shows_and_could_not_refute(report, fitted, capsys):
    made = privacy_report(fitted, n_canaries=3, verbose=1)  # two guesses show nothing at 95 %
    assert "nothing shown" in words_of(made)
    assert "audits" in capsys.readouterr().err
    (part,) = report.audits
    assert part.could_refute
    assert part.facts["power"] == part.result.power > 0.5

    def changed(**changes):
        return dataclasses.replace(part, result=dataclasses.replace(part.result, **changes))

    noise = dataclasses.replace(part.result.noise, unseen=("margins",))
    blind = changed(noise=noise)
    assert not blind.could_refute
    assert "but not in: margins." in blind.verdict
    refuted = dataclasses.replace(report, audits=(changed(n_correct=part.result.n_guesses),))
    assert refuted.refuted
    assert refuted.audits[0].verdict.startswith("DPSlicedFlowSampler: REFUTED: ")
    assert "Do not publish: the audit below refutes" in words_of(refuted)


def test_an_audit_that_cannot_be_made_says_why(monkeypatch, fitted):
    for name, reason in (("public", "fitted to public rows"), ("triangle", "claims no privacy")):
        made = privacy_report(fit_of(name))
        assert made.audits[0].result is None
        assert not made.refuted
        assert reason in made.audits[0].reason
        assert reason in words_of(made)

    def broken(*args, **kwargs):
        raise ValueError("a defect")

    monkeypatch.setattr(part_audits, "one_run_audit", broken)
    with pytest.raises(ValueError, match="a defect"):
        privacy_report(fitted)


def test_a_copy_with_another_claim_says_so():
    rows = np.random.default_rng(0).uniform(-1, 1, size=(3000, 3))
    options = {"sigma": 30.0, "n_steps": 3, "n_projections": 4, "batch_size": 50}
    fitted = sampler(mechanism="resample", **options).fit(rows)
    part = privacy_report(fitted, n_canaries=20).audits[0]
    assert part.result.epsilon > fitted.privacy_spent_.epsilon
    assert "this claim is tested" in part.sight


# Every estimator.


@pytest.mark.slow
@pytest.mark.parametrize("name", [*SHARED, *OWN])
def test_every_estimator_has_a_report(name):
    fit = fit_of(name)
    is_net = name.startswith(("autoencoder", "classifier", "regressor", "generator"))
    labels = fits.FITS[name].given.get("y") if name in SHARED else None
    options = {"n_canaries": 60, "audit": not is_net and name != "refitted search"}
    options["y_holdout"] = None if labels is None else labels[:120]
    made = privacy_report(fit, X_PUBLIC, random_state=0, **options)
    words_of(made)
    json.dumps(made.to_dict(), allow_nan=False)
    assert len(made.to_frame()) > 20
    assert bool(made.audits) == options["audit"]
    samples = name == "pipeline" or (hasattr(fit, "sample") and name != "paths")
    assert (made.membership.found is not None) == (samples and "parity" not in name)
    assert bool(made.membership.reason) == (made.membership.found is None)
    assert bool(made.utility) == hasattr(fit, "score")
    assert bool(made.utility_reason) == (not made.utility)
    assert not made.silent
    if name == "refitted search":
        named = [text.partition(":")[0] for text in made.releases]
        assert named == ["The search", "The refit of the winner"]
        winner = privacy_report(fit.best_estimator_, audit=False)
        assert winner.spent is made.spent is fit.privacy_spent_


# What is left out of a report, and why: a fit, the hold-out and its labels, and words of a reason.
REASONS = {
    "paths": ("paths", X_PUBLIC, fits.TIMES[:120], "publishes paths"),
    "score of paths": ("paths", X_PUBLIC, None, "needs labels"),
    "groups": ("autoencoder, parity", X_PUBLIC, None, "sensitive_features"),
    "no sample": ("classifier", X_PUBLIC, None, "has no method sample"),
    "no score": ("sketch, box", X_PUBLIC, None, "has no score of its own"),
    "no rows": ("flow", None, None, "public rows"),
    "few rows": ("flow", X_PUBLIC[:20], None, "at least 40"),
    "no labels": ("flow, classes", X_PUBLIC, None, "labels of the hold-out"),
}


@pytest.mark.parametrize("case", REASONS)
def test_reasons_are_true(case):
    name, holdout, labels, words = REASONS[case]
    made = privacy_report(fit_of(name), holdout, y_holdout=labels, audit=False)
    assert words in made.membership.reason + made.utility_reason
    assert words in words_of(made)


def test_rows_of_a_pipeline_are_attacked_as_they_came_in():
    report = privacy_report(
        make_pipeline(fits.autoencoder(**BOUNDS).estimator, sampler(bounds=(-9, 9))).fit(X),
        X_PUBLIC,
        audit=False,
    )
    assert report.membership.found.best.epsilon == pytest.approx(report.spent.epsilon, rel=0.05)
    one_way = make_pipeline(PrivateScaler(), Nystroem(n_components=2), sampler(bounds=(-9, 9)))
    report = privacy_report(one_way.fit(X), X_PUBLIC, audit=False)
    assert "inverse_transform" in report.membership.reason
    lost = make_pipeline(PrivateScaler(), SelectKBest(k=2), sampler(bounds=(-9, 9)))
    report = privacy_report(lost.fit(X, Y), X_PUBLIC, y_holdout=Y_PUBLIC, audit=False)
    assert report.membership.found.best.epsilon == math.inf  # SelectKBest has no event


def test_a_page_without_noise_claims_nothing():
    made = privacy_report(sketch(epsilon=np.inf), n_canaries=20)
    text = words_of(made)
    assert "no privacy is claimed" in text
    for words in ("noisy distribution", "The guarantee holds", "is δ,"):
        assert words not in text
    assert 'class="box good"' not in made.to_html()
    facts = json.loads(json.dumps(made.to_dict(), allow_nan=False))
    assert facts["spent"]["epsilon"] == facts["meaning"]["odds_factor"] == "inf"
    value = made.to_frame().set_index(["section", "fact"])["value"]
    assert value["spent", "epsilon"] == math.inf


# What is refused.


@pytest.mark.parametrize(
    ("estimator", "error", "message"),
    [
        (lambda: SlicedSketch(), NotFittedError, "not fitted"),
        (lambda: LinearRegression().fit(X, Y), TypeError, "privacy_spent_"),
        (lambda: GridSearchCV(sampler(), {"n_steps": [5]}, cv=2).fit(X), TypeError, "many fits"),
        (lambda: X, TypeError, "ndarray"),
    ],
)
def test_no_report_without_a_private_fit(estimator, error, message):
    with pytest.raises(error, match=message):
        privacy_report(estimator())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"X_members": X}, "X_members needs X_holdout"),
        ({"y_holdout": Y}, "y_holdout needs X_holdout"),
        ({"X_holdout": X_PUBLIC, "y_holdout": Y_PUBLIC[:-1]}, "119 labels for 120 rows"),
        ({"X_holdout": 1.5, "y_holdout": Y}, "must be arrays"),
        ({"n_canaries": 0}, "n_canaries == 0, must be"),
        ({"n_canaries": X}, "n_canaries must be an instance of int, not"),
        ({"audit": "no"}, "audit must be True or False, not str"),
        ({"confidence": X}, "confidence must be a number, not ndarray"),
        ({"budget": X}, "budget must be a PrivacyBudget"),
        ({"X_holdout": X_PUBLIC, "X_members": X[:, 0]}, "X_members"),
        ({"X_holdout": X_PUBLIC, "X_members": X.astype(str)}, "X_members"),
    ],
)
def test_refusals_quote_no_row(fitted, options, message):
    with pytest.raises((TypeError, ValueError), match=message) as caught:
        privacy_report(fitted, **options)
    assert not re.search(r"\d\.\d", str(caught.value))


# Tables.

TABLE = pd.DataFrame(
    {
        "ward": RNG.choice(["ICU", "ER", "GEN"], 400),
        "day": pd.Timestamp("2024-01-01") + pd.to_timedelta(RNG.integers(0, 90, 400), "D"),
        "age": RNG.integers(0, 100, 400),
        "smokes": pd.Series(RNG.random(400) < 0.3).astype("boolean").mask(RNG.random(400) < 0.1),
        "note": [f"patient {i}" for i in range(400)],
    }
)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("names", "library"), [(list(TABLE), "pandas"), (["ward", "note"], "polars")]
)
def test_tables_of_text_and_dates(names, library):
    """By default, with a hold-out, and with members: nothing of it needs numbers."""
    rows = TABLE[names]
    if library == "polars":
        rows = pytest.importorskip("polars").DataFrame(rows.to_dict("list"))
    synthesizer = DPTableSynthesizer(epsilon=4.0, n_particles=500).fit(rows[:300])
    (audit,) = privacy_report(synthesizer).audits
    assert audit.result.epsilon == 4.0
    assert "numbered by the cells" in audit.sight
    made = privacy_report(synthesizer, rows[300:], X_members=rows[:300], audit=False)
    text = words_of(made)
    assert "Counts of each column: " in text
    assert made.membership.of_members
    assert made.utility[0].value <= 0.0
    assert not any(name in text for name in TABLE["note"])
    copied = privacy_report(synthesizer, rows[300:], audit=False).membership
    assert 0.0 <= copied.found.best.auc <= 1.0


def test_the_audit_of_a_table_sees_that_there_is_no_noise(monkeypatch):
    """What the numbered copy counts is what the attack looks at, whatever the columns held."""
    schema = TableSchema(
        [
            CategoricalColumn("ward", categories=["ICU", "ER", "GEN"]),
            DatetimeColumn("day", lower="2024-01-01", upper="2024-04-01", resolution="D"),
        ]
    )
    synthesizer = DPTableSynthesizer(schema, n_particles=500).fit(TABLE[["ward", "day"]])
    unprotected = DPTableSynthesizer(schema, epsilon=math.inf, n_particles=500)
    monkeypatch.setattr(part_audits, "unpaid_copy", lambda part: unprotected)
    (audit,) = privacy_report(synthesizer).audits
    assert audit.result.n_correct >= 0.9 * audit.result.n_guesses
