"""The report for a data-protection officer: complete, right, self-contained, and private itself.

Fits and audits draw secret noise: margins around them hold for false alarms of less than 1e-6.
"""

import base64
import dataclasses
import json
import math
import re
from html.parser import HTMLParser
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
from scipy.stats import norm
from sklearn.decomposition import PCA
from sklearn.exceptions import NotFittedError
from sklearn.feature_selection import SelectKBest
from sklearn.frozen import FrozenEstimator
from sklearn.kernel_approximation import Nystroem
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, StandardScaler

import skdpot.release.sketch as sketch_module
from skdpot import (
    ClientContribution,
    DPSlicedGenerator,
    DPTableSynthesizer,
    FairPrivateClassifier,
    FairPrivateRegressor,
    PrivacyBudget,
    PrivateScaler,
    PrivateSearchCV,
    PrivateSWAutoencoder,
    SlicedSketch,
)
from skdpot.audit.one_run import AuditResult
from skdpot.audit.report import privacy_report
from skdpot.audit.report_page import (
    beside_claim,
    meaning_of,
    one_in,
    percent_at_most,
)
from skdpot.audit.report_trials import PartAudit, simulated_rows, unpaid_copy
from skdpot.exceptions import NotPrivateWarning, PrivacyWarning
from skdpot.preprocessing import CategoricalColumn, DatetimeColumn, TableSchema
from skdpot.privacy.budget import rounded_up
from skdpot.privacy.events import ComposedEvent, GaussianEvent, NonPrivateEvent, Relation, gdp_mu
from skdpot.privacy.sampling import SampledGaussianEvent
from skdpot.privacy.selection import ThresholdedCountsEvent
from skdpot.privacy.spent import PrivacySpent
from tests.flat_options import flow_sampler, made, private_distance, trajectory_sampler

# Few rows, so that fits take no time: they warn that noise hides much.
pytestmark = [
    pytest.mark.filterwarnings("ignore::skdpot.exceptions.PrivacyWarning"),
    pytest.mark.filterwarnings("ignore::skdpot.exceptions.FairnessWarning"),
]

RNG = np.random.default_rng(0)
X = np.clip(RNG.normal(0.0, 0.4, size=(240, 3)), -1, 1)
Y = (X[:, 0] > 0).astype(int)
GROUPS = np.arange(240) % 2
X_PUBLIC = np.clip(RNG.normal(0.0, 0.4, size=(120, 3)), -1, 1)
Y_PUBLIC = (X_PUBLIC[:, 0] > 0).astype(int)
BOUNDS = {"bounds": (-1, 1)}


def sampler(**options):
    return flow_sampler(**({"n_steps": 10} | BOUNDS | options))


FITS = {
    "sketch": lambda: SlicedSketch(**BOUNDS).fit(X),
    "classes": lambda: SlicedSketch(conditional=True, **BOUNDS).fit(X, Y),
    "flow": lambda: sampler().fit(X),
    "flow of classes": lambda: sampler(conditional=True).fit(pd.DataFrame(X, columns=[*"abc"]), Y),
    "rows": lambda: sampler(mechanism="presample").fit(X),
    "generator": lambda: DPSlicedGenerator(n_steps=5, **BOUNDS).fit(X),
    "autoencoder": lambda: made(PrivateSWAutoencoder, 2, n_steps=5, **BOUNDS).fit(X),
    "parity": lambda: made(PrivateSWAutoencoder, 2, n_steps=5, penalty="parity", **BOUNDS).fit(
        X, sensitive_features=GROUPS
    ),
    "public": lambda: made(PrivateSWAutoencoder, 2, n_steps=5, private=False).fit(X),
    "classifier": lambda: made(FairPrivateClassifier, n_steps=5, alpha=0.0).fit(X, Y),
    "fair": lambda: made(FairPrivateClassifier, n_steps=5).fit(
        X, np.array(["no", "yes"])[Y], sensitive_features=GROUPS
    ),
    "regressor": lambda: made(FairPrivateRegressor, n_steps=5).fit(
        X, X[:, 1], sensitive_features=GROUPS
    ),
    "distance": lambda: private_distance(**BOUNDS).fit(X),
    "contribution": lambda: ClientContribution(private_distance(**BOUNDS)).fit(X),
    "paths": lambda: trajectory_sampler(**BOUNDS).fit(X, np.arange(240) % 3),
    "scaler": lambda: PrivateScaler().fit(X),
    "pipeline": lambda: make_pipeline(PrivateScaler(budget=PrivacyBudget(2.0)), sampler()),
}


class Page(HTMLParser):
    """Collects the tags and the addresses of a page, and whether tags are closed in order."""

    VOID = frozenset({"meta", "img", "br"})

    def __init__(self, text):
        super().__init__()
        self.tags, self.addresses, self.open, self.words = [], [], [], []
        self.feed(text)
        self.close()
        assert not self.open

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        self.addresses += [value for name, value in attrs if name in ("src", "href")]
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open and self.open[-1] != "style":
            self.words.append(data)

    @property
    def text(self):
        return re.sub(r"\s+", " ", "".join(self.words))


@pytest.fixture(scope="module")
def fitted():
    return sampler(conditional=True, budget=PrivacyBudget(2.0)).fit(X, Y)


@pytest.fixture(scope="module")
def report(fitted):
    return privacy_report(fitted, X_PUBLIC, y_holdout=Y_PUBLIC, n_canaries=100, random_state=0)


# The page.


def test_page_needs_nothing_else(report, tmp_path):
    text = report.to_html(tmp_path / "report.html")
    assert (tmp_path / "report.html").read_text(encoding="utf-8") == text
    page = Page(text)
    names = [name for name, _ in page.tags]
    assert not {"script", "link", "iframe", "object", "form"} & set(names)
    assert not any(name.startswith("on") for _, attrs in page.tags for name in attrs)
    assert all(address.startswith("data:image/") for address in page.addresses)
    assert "http" not in re.sub(r"base64,[A-Za-z0-9+/=]+", "", text)
    assert "@import" not in text
    assert "url(" not in text
    # It has a language, fits a phone, prints, and speaks of its pictures.
    tags = dict(page.tags)
    assert tags["html"] == {"lang": "en"}
    assert "width=device-width" in text
    assert "@media print" in text
    assert all(attrs.get("alt") for name, attrs in page.tags if name == "img")
    assert "color:#1c2127;background:#fff" in text
    assert len(text) < 1_000_000


def test_notebook_shows_the_same(report):
    fragment = report._repr_html_()
    assert fragment in report.to_html()
    assert "<html" not in fragment
    # Every rule is of this report alone, and leaves the notebook around it as it is.
    style = re.sub(r"@media[^{]*\{", "", re.search(r"<style>(.*?)</style>", fragment, re.S)[1])
    rules = [rule.strip() for rule in re.findall(r"([^{}]+)\{", style)]
    assert all(
        part.strip().startswith(".skdpot-report") for rule in rules for part in rule.split(",")
    )


def test_page_says_everything(report, fitted):
    text = Page(report.to_html()).text
    for heading in (
        "Warnings", "What was released", "Who is protected", "What is taken for granted",
        "Budget and history", "Audit", "Membership", "Usefulness", "does not cover", "For experts",
    ):  # fmt: skip
        assert heading in text
    spent = fitted.privacy_spent_
    for assumption in spent.assumptions:
        assert assumption[1:] in text
    assert spent.mechanism in text
    assert f"{spent.sigma:.4g}" in text
    assert "A low bound is no proof of privacy" in text
    assert "GridSearchCV" in text
    assert "No private record was touched" in text
    assert "ε = 1" in text
    assert "1 in 100,000" in text


def test_labels_are_escaped():
    budget = PrivacyBudget(3.0)
    budget.spend(GaussianEvent(sigma=20.0, sensitivity=1.0), label="<script>alert(1)</script>&")
    fit = SlicedSketch(budget=budget, **BOUNDS).fit(X)
    text = privacy_report(fit, audit=False).to_html()
    assert "script" not in [name for name, _ in Page(text).tags]
    assert "&lt;script&gt;alert(1)&lt;/script&gt;&amp;" in text


def test_pictures_leave_pyplot_alone(report):
    before = plt.get_fignums()
    report.to_html()
    assert plt.get_fignums() == before
    pictures = re.findall(r"data:image/([a-z+]+);base64,([A-Za-z0-9+/=]+)", report.to_html())
    assert [kind for kind, _ in pictures] == ["svg+xml", "png"]
    assert b"<script" not in base64.b64decode(pictures[0][1])


# What it says is right.


def test_facts_as_values(report, fitted):
    facts = json.loads(json.dumps(report.to_dict()))
    assert facts["estimator"] == "DPSlicedFlowSampler"
    assert facts["spent"]["epsilon"] == 1.0
    assert facts["spent"]["relation"] == "replace_one"
    assert facts["spent"]["assumptions"] == list(fitted.privacy_spent_.assumptions)
    (budget,) = facts["budgets"]
    assert budget["epsilon"] == 2.0
    assert budget["spent"] == pytest.approx(1.0)
    assert [charge["label"] for charge in budget["history"]] == ["DPSlicedFlowSampler"]
    (audit,) = facts["audits"]
    assert audit["epsilon"] == 1.0
    assert audit["n_canaries"] == 100
    assert not audit["refuted"]
    assert len(facts["membership"]["attacks"]) == 5
    assert facts["membership"]["share"]["expected"] == pytest.approx(2 / 3)
    names = [figure["name"] for figure in facts["utility"]]
    assert len(names) == 6
    assert facts["utility"][3]["value"] <= 1.0
    table = report.to_frame()
    assert list(table) == ["section", "fact", "value"]
    value = table.set_index(["section", "fact"])["value"]
    assert value["spent", "epsilon"] == 1.0
    assert value["budgets", "1.history 1.label"] == "DPSlicedFlowSampler"
    assert repr(report).startswith("PrivacyReport(DPSlicedFlowSampler, epsilon=1, delta=1e-05, ")


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 8.0])
def test_meaning(epsilon):
    mu = gdp_mu(epsilon, 1e-5)
    event = GaussianEvent(sigma=1.0, sensitivity=mu)
    spent = PrivacySpent(epsilon, 1e-5, Relation.REPLACE_ONE, event, 1.0, mu, ())
    meaning = meaning_of(spent)
    assert meaning.odds_factor == pytest.approx(math.exp(epsilon))
    bound = (math.expm1(epsilon) + 2e-5) / (math.exp(epsilon) + 1)
    assert meaning.advantage_bound == pytest.approx(bound)
    assert meaning.right_at_most == pytest.approx((1 + bound) / 2)
    assert meaning.right_by_noise == pytest.approx(norm.cdf(mu / 2))
    steep = 0.01 * math.exp(epsilon) + 1e-5
    assert meaning.tpr_bound == pytest.approx(min(steep, 1 - math.exp(-epsilon) * (0.99 - 1e-5)))


def test_meaning_of_nothing():
    spent = PrivacySpent(math.inf, 1e-5, Relation.REPLACE_ONE, NonPrivateEvent(), None, None, ())
    assert meaning_of(spent).right_at_most == meaning_of(spent).right_by_noise == 1.0
    huge = dataclasses.replace(spent, epsilon=1e4, event=GaussianEvent(sigma=1e-3, sensitivity=9.0))
    assert meaning_of(huge).odds_factor == math.inf


def test_figures_are_rounded_to_the_safe_side():
    assert percent_at_most(0.50001) == "50.1 %"
    assert percent_at_most(0.5) == "50.0 %"
    assert percent_at_most(1.0) == "100.0 %"
    assert one_in(1e-5) == "1 in 100,000"
    assert one_in(3e-4) == "1 in 3,333"


def test_events_in_words():
    noise = {"sigma": 2.0, "sensitivity": 1.5}
    event = ComposedEvent(
        events=(
            GaussianEvent(**noise),
            GaussianEvent(n_steps=3, **noise),
            SampledGaussianEvent(
                sampling="fixed_size",
                batch_sizes=(20, 30),
                group_sizes=(100, 1500),
                n_steps=7,
                **noise,
            ),
            SampledGaussianEvent(sampling="poisson", sampling_rate=0.25, n_steps=1000, **noise),
            SampledGaussianEvent(
                sampling="poisson_rows", sampling_rate=0.5, n_samples=100, n_steps=2, **noise
            ),
            ComposedEvent(events=(NonPrivateEvent(),)),
        )
    )
    words = [e.describe() for e in event.phases]
    assert len(words) == 6
    assert words[0].startswith("1 release, of numbers computed from all records: every number has ")
    assert "standard deviation 2, and replacing one record moves" in words[0]
    assert words[1].startswith("3 releases")
    assert "20 + 30 records drawn afresh and secretly from 100 + 1,500" in words[2]
    assert words[3].startswith("1,000 releases")
    assert "with probability 0.25" in words[3]
    assert "one vector a record of a secret sample" in words[4]
    assert words[5] == "Something was released without any noise."
    other = GaussianEvent(relation=Relation.ADD_REMOVE, **noise).describe()
    assert "adding or removing one record" in other


def test_a_selection_of_categories_in_words():
    noise = {"sigma": 20.0, "threshold": 105.0}
    words = ThresholdedCountsEvent(n_columns=3, **noise).describe()
    assert words.startswith("The categories of 3 columns: every count has Gaussian noise of stand")
    assert "moves two counts of a column by 1" in words
    assert "exceed 105 are released. With probability 3e-07 at most" in words
    one = ThresholdedCountsEvent(relation=Relation.ADD_REMOVE, **noise).describe()
    assert "of 1 column: " in one
    assert "adding or removing one record moves one count of a column by 1" in one


# Warnings.


def warnings_of(estimator, **options):
    made = privacy_report(estimator, audit=False, **options)
    text = Page(made.to_html()).text
    assert all(caution.text in text.replace("\xa0", " ") for caution in made.cautions)
    assert ("Do not publish before" in text) == any(c.level == "stop" for c in made.cautions)
    return [(caution.level, caution.text) for caution in made.cautions]


def durable(tmp_path):
    return PrivacyBudget(100.0, ledger=tmp_path / "ledger.sqlite")


def test_nothing_to_warn_of(tmp_path):
    assert warnings_of(SlicedSketch(budget=durable(tmp_path), **BOUNDS).fit(X)) == []


def test_no_budget_or_a_passing_one():
    ((level, text),) = warnings_of(SlicedSketch(**BOUNDS).fit(X))
    assert level == "caution"
    assert "No budget counts" in text
    ((level, text),) = warnings_of(SlicedSketch(budget=PrivacyBudget(2.0), **BOUNDS).fit(X))
    assert "temporary file" in text
    found = warnings_of(SlicedSketch(budget=PrivacyBudget(np.inf), **BOUNDS).fit(X))
    assert any("no cap" in text for _, text in found)


def test_seed_is_told_of_and_not_told(tmp_path):
    with pytest.warns(PrivacyWarning, match="random_state"):
        fit = SlicedSketch(random_state=987654321, budget=durable(tmp_path), **BOUNDS).fit(X)
    ((level, text),) = warnings_of(fit)
    assert level == "stop"
    assert "can be repeated" in text
    made = privacy_report(fit, n_canaries=100)
    for output in (made.to_html(), str(made.to_dict()), made.to_frame().to_string(), repr(made)):
        assert "987654321" not in output
    assert made.audits[0].result is not None


def test_no_noise():
    ((level, text),) = warnings_of(SlicedSketch(epsilon=np.inf, **BOUNDS).fit(X))
    assert level == "stop"
    assert text.startswith("No privacy")
    with pytest.warns(NotPrivateWarning):
        fit = private_distance("triangle").fit(X)
    assert warnings_of(fit)[0][0] == "stop"


def test_floating_noise_large_epsilon_and_delta(tmp_path):
    options = {"mechanism": "presample", "noise": "float", "budget": durable(tmp_path)}
    ((level, text),) = warnings_of(sampler(**options).fit(X))
    assert level == "caution"
    assert "floating-point" in text
    budget = PrivacyBudget(100.0, ledger=tmp_path / "other.sqlite")
    ((level, text),) = warnings_of(SlicedSketch(epsilon=20.0, budget=budget, **BOUNDS).fit(X))
    assert "so large" in text
    budget = PrivacyBudget(100.0, 0.01, ledger=tmp_path / "third.sqlite")
    with pytest.warns(PrivacyWarning, match="not below one over"):
        fit = SlicedSketch(delta=1 / 240, budget=budget, **BOUNDS).fit(X)
    ((level, text),) = warnings_of(fit)
    assert level == "stop"
    assert "below 1/n for n = 240" in text
    # Sizes are read from events too; where nobody knows them, the reader is asked to look.
    assert not any("does not keep" in text for _, text in warnings_of(FITS["parity"]()))
    assert any("PrivateScaler does not keep" in text for _, text in warnings_of(FITS["scaler"]()))


# It touches nothing private, and spends nothing.


def test_no_private_value_and_no_charge(tmp_path):
    secret = X.copy()
    secret[7] = [0.123456789, -0.987654321, 0.555444333]
    budget = durable(tmp_path)
    pipeline = make_pipeline(
        PrivateScaler(budget=budget), sampler(bounds=(-9, 9), budget=budget)
    ).fit(secret)
    before = budget.history()
    made = privacy_report(pipeline, X_PUBLIC, n_canaries=100)
    sampled = privacy_report(sampler(budget=budget).fit(secret), X_PUBLIC, n_canaries=100)
    after = budget.history()
    assert len(after) == len(before) + 1  # the fit itself
    for output in (made.to_html(), str(sampled.to_dict()), sampled.to_html()):
        for value in ("0.12345", "0.98765", "0.55544"):
            assert value not in output
    assert made.spent.event.events  # both steps
    assert made.parts == ("PrivateScaler", "DPSlicedFlowSampler")
    assert [part.name for part in made.audits] == list(made.parts)
    assert all(part.result is not None for part in (*made.audits, *sampled.audits))


def test_members_only_if_they_are_given(monkeypatch, fitted):
    import skdpot.audit.report_trials as trials

    seen = []

    def spy(source, members, holdout, **options):
        seen.append((source, members))
        return original(source, members, holdout, **options)

    original = trials.synthetic_membership
    monkeypatch.setattr(trials, "synthetic_membership", spy)
    made = privacy_report(fitted, X_PUBLIC, y_holdout=Y_PUBLIC, audit=False)
    ((source, members),) = seen
    assert source is not fitted
    assert source.budget is None
    assert not hasattr(fitted, "_copied")
    assert {tuple(row) for row in members} <= {tuple(row) for row in X_PUBLIC}
    assert not made.membership.of_members
    assert "is not private" not in Page(made.to_html()).text

    made = privacy_report(fitted, X_PUBLIC, X_members=X, audit=False)
    source, members = seen[1]
    assert source is fitted
    assert members is X
    assert made.membership.of_members
    text = Page(made.to_html()).text
    assert "It is not private: keep it, and this report, to those who may see these rows." in text
    assert "No private record was touched" not in text


def test_ledger_that_is_gone(tmp_path):
    fit = SlicedSketch(budget=durable(tmp_path), **BOUNDS).fit(X)
    Path(fit.budget.ledger).unlink()
    made = privacy_report(fit, audit=False)
    assert made.budgets[0].spent is None
    assert "The ledger could not be read" in Page(made.to_html()).text
    assert made.to_dict()["budgets"][0]["history"] == []


# The audit.


def test_a_broken_mechanism_is_refuted(monkeypatch):
    plan = sketch_module.plan_sketch

    def too_quiet(*args, **kwargs):
        right = plan(*args, **kwargs)
        return dataclasses.replace(right, sigma=right.sigma / 100)

    monkeypatch.setattr(sketch_module, "plan_sketch", too_quiet)
    rows = np.random.default_rng(1).uniform(-1, 1, size=(1500, 30))
    made = privacy_report(SlicedSketch(**BOUNDS).fit(rows), n_canaries=400)
    assert made.refuted
    text = Page(made.to_html()).text
    assert "Do not publish: the audit below refutes what is claimed." in text
    assert "REFUTED" in text


def test_a_copy_has_neither_budget_nor_seed():
    budget = PrivacyBudget(2.0)
    steps = make_pipeline(PrivateScaler(budget=budget), sampler(budget=budget, random_state=1))
    for part in (steps, steps[-1]):
        copy = unpaid_copy(part)
        values = [v for k, v in copy.get_params().items() if k.endswith(("budget", "random_state"))]
        assert len(values) >= 2
        assert set(values) == {None}
    assert steps[-1].random_state == 1


def test_audit_that_cannot_be_made():
    made = privacy_report(FITS["public"]())
    assert made.audits[0].result is None
    assert "It was fitted to public rows" in Page(made.to_html()).text
    assert not made.refuted
    assert "not audited" in repr(made)
    assert made.to_dict()["audits"][0]["reason"]
    assert (
        "None was asked for" in Page(privacy_report(FITS["scaler"](), audit=False).to_html()).text
    )


def test_rows_for_the_audit_are_made_up():
    rng = np.random.default_rng(0)
    rows, _ = simulated_rows(FITS["flow of classes"](), 50, rng)
    assert rows["X"].shape == (50, 3)
    assert set(rows["y"]) <= {0, 1}
    rows, _ = simulated_rows(FITS["paths"](), 50, rng)
    assert rows["X"].shape == (51, 3)
    np.testing.assert_array_equal(np.unique(rows["y"]), [0, 1, 2])
    rows, _ = simulated_rows(FITS["fair"](), 50, rng)
    assert set(rows["y"]) == {"no", "yes"}
    assert set(rows["fit_params"]["sensitive_features"]) == {0, 1}
    assert len(set(zip(rows["y"], rows["fit_params"]["sensitive_features"], strict=True))) == 4
    rows, _ = simulated_rows(FITS["regressor"](), 50, rng)
    assert rows["y"].shape == (50,)
    rows, _ = simulated_rows(FITS["parity"](), 50, rng)
    assert set(rows["fit_params"]["sensitive_features"]) == {0, 1}
    for name in ("sketch", "distance"):
        rows, _ = simulated_rows(FITS[name](), 50, rng)
        assert np.abs(rows["X"]).max() <= 1
        assert rows["y"] is None
    rows, _ = simulated_rows(FITS["scaler"](), 50, rng)
    assert rows["X"].shape == (50, 3)
    assert not {tuple(row) for row in rows["X"]} & {tuple(row) for row in X}


# Every estimator.


@pytest.mark.parametrize("name", FITS)
def test_every_estimator_has_a_report(name):
    fit = FITS[name]()
    if name == "pipeline":
        fit.fit(X)
    labels = {
        "classes": Y_PUBLIC, "flow of classes": Y_PUBLIC, "classifier": Y_PUBLIC,
        "fair": np.array(["no", "yes"])[Y_PUBLIC], "regressor": X_PUBLIC[:, 1],
        "paths": np.arange(120) % 3,
    }  # fmt: skip
    audited = name not in ("autoencoder", "parity", "classifier", "fair", "regressor", "generator")
    public = pd.DataFrame(X_PUBLIC, columns=[*"abc"]) if name == "flow of classes" else X_PUBLIC
    made = privacy_report(
        fit, public, y_holdout=labels.get(name), n_canaries=60, audit=audited, random_state=0
    )
    Page(made.to_html())
    json.dumps(made.to_dict(), allow_nan=False)
    assert len(made.to_frame()) > 20
    assert made.audits or not audited
    samples = name == "pipeline" or (hasattr(fit, "sample") and name != "paths")
    assert (made.membership.found is not None) == (samples and name != "parity")
    assert made.membership.reason or made.membership.found
    scored = hasattr(fit, "score")
    assert bool(made.utility) == scored
    assert bool(made.utility_reason) == (not scored)
    assert not made.silent


def test_no_report_without_a_fit():
    for unfitted in (SlicedSketch(), sampler(), make_pipeline(PrivateScaler(), sampler())):
        with pytest.raises(NotFittedError):
            privacy_report(unfitted)
    with pytest.raises(TypeError, match="privacy_spent_"):
        privacy_report(LinearRegression().fit(X, Y))
    search = GridSearchCV(sampler(), {"n_steps": [5]}, cv=2).fit(X)
    with pytest.raises(TypeError, match="many fits"):
        privacy_report(search)


def test_refusals(fitted):
    with pytest.raises(ValueError, match="X_members needs X_holdout"):
        privacy_report(fitted, X_members=X)
    with pytest.raises(ValueError, match="y_holdout needs X_holdout"):
        privacy_report(fitted, y_holdout=Y)
    with pytest.raises(ValueError, match="119 labels for 120 rows"):
        privacy_report(fitted, X_PUBLIC, y_holdout=Y_PUBLIC[:-1])
    for wrong in (0, -1):
        with pytest.raises(ValueError, match=f"n_canaries == {wrong}, must be"):
            privacy_report(fitted, n_canaries=wrong)
    for wrong in (X, 2.5, True):
        with pytest.raises(TypeError, match="n_canaries must be an instance of int, not"):
            privacy_report(fitted, n_canaries=wrong)
    with pytest.raises(TypeError, match="audit must be True or False, not str"):
        privacy_report(fitted, audit="no")
    with pytest.raises(TypeError, match="confidence must be a number, not ndarray"):
        privacy_report(fitted, confidence=X)
    with pytest.raises(ValueError, match="confidence=1"):
        privacy_report(fitted, confidence=1)
    with pytest.raises(TypeError, match="budget must be a PrivacyBudget"):
        privacy_report(fitted, budget=1.0)
    small = privacy_report(fitted, X_PUBLIC[:20], y_holdout=Y_PUBLIC[:20], audit=False)
    assert "at least 40" in small.membership.reason
    unlabelled = privacy_report(fitted, X_PUBLIC, audit=False)
    assert (
        "labels" in unlabelled.membership.reason or "y to be passed" in unlabelled.membership.reason
    )
    assert len(unlabelled.utility) == 3


def test_a_refitted_winner_tells_of_a_search():
    search = PrivateSearchCV(sampler(), {}, n_trials=2, refit=True, score_on="release").fit(X)
    for estimator in (search, search.best_estimator_):
        made = privacy_report(estimator, audit=False)
        names = [text.partition(":")[0] for text in made.releases]
        assert names == ["The search", "The refit of the winner"]
        assert made.spent is search.privacy_spent_


# What a reviewer found.


@pytest.mark.parametrize(
    "steps",
    [
        lambda: (StandardScaler(), sampler(bounds=(-9, 9))),
        lambda: (PrivateScaler(), LogisticRegression()),
        lambda: (PrivateScaler(), make_pipeline(PCA(2), sampler(bounds=(-9, 9)))),
    ],
)
def test_a_part_that_learns_without_noise_is_no_privacy(steps):
    fit = make_pipeline(*steps()).fit(X, Y)
    made = privacy_report(fit, audit=False)
    (name,) = made.silent
    stops = [caution.text for caution in made.cautions if caution.level == "stop"]
    assert [text.split(" was fitted")[0] for text in stops] == [name]
    text = Page(made.to_html()).text
    assert "What was released is differentially private" not in text
    assert "It does not hold for the whole" in text
    assert f"is claimed by {' + '.join(made.parts)} alone" in text
    assert made.to_dict()["silent"] == [name]


def test_what_learns_nothing_or_was_fitted_before():
    scaler = StandardScaler().fit(X_PUBLIC)
    steps = (FunctionTransformer(), FrozenEstimator(scaler), sampler(bounds=(-9, 9)))
    made = privacy_report(make_pipeline(*steps).fit(X), audit=False)
    assert made.silent == ("FrozenEstimator",)
    assert all(caution.level == "caution" for caution in made.cautions)


def test_no_error_quotes_a_row(fitted):
    for call in (
        lambda: privacy_report(X),
        lambda: privacy_report(fitted, X_PUBLIC, X_members=X[:, 0]),
        lambda: privacy_report(fitted, X_PUBLIC, X_members=X[0, 0]),
        lambda: privacy_report(fitted, X_PUBLIC, X_members=X.astype(str)),
        lambda: privacy_report(fitted, n_canaries=X),
        lambda: privacy_report(fitted, budget=X),
    ):
        with pytest.raises((TypeError, ValueError)) as caught:
            call()
        assert not re.search(r"\d\.\d", str(caught.value))


def test_a_report_of_members_says_so_at_its_top(fitted):
    made = privacy_report(fitted, X_PUBLIC, X_members=X, audit=False)
    assert made.cautions[0].level == "stop"
    assert made.cautions[0].text.startswith("This report is not private")
    assert made.to_dict()["cautions"][0]["text"].startswith("This report is not private")
    head = made.to_html().split("<section>")[0]
    assert "Do not pass this report on." in head
    assert "This report is not private" in head
    assert 'class="box good"' not in head


def test_an_audit_that_could_not_refute_is_not_green(fitted):
    made = privacy_report(fitted, n_canaries=20)
    (part,) = made.audits
    assert part.could_refute
    assert made.to_dict()["audits"][0]["power"] == part.result.power > 0.5
    assert f"{math.floor(100 * part.result.power)} %" in Page(made.to_html()).text
    assert 'class="box neutral"' not in made.to_html()
    noise = dataclasses.replace(part.result.noise, unseen=("margins",))
    blind = dataclasses.replace(part, result=dataclasses.replace(part.result, noise=noise))
    assert not blind.could_refute
    assert "but not in: margins." in blind.verdict


@pytest.mark.parametrize(("share", "level"), [(0.09, None), (0.2, "caution"), (1.01, "stop")])
def test_delta_beside_one_over_n(share, level):
    delta = share / 240
    fit = SlicedSketch(delta=delta, **BOUNDS).fit(X)
    found = [c.level for c in privacy_report(fit, audit=False).cautions if "1/n" in c.text]
    assert found == ([level] if level else [])


def test_reasons_are_true():
    def reasons(fit, **options):
        made = privacy_report(fit, X_PUBLIC, audit=False, **options)
        return made.membership.reason, made.utility_reason

    assert "publishes paths" in reasons(FITS["paths"](), y_holdout=np.arange(120) % 3)[0]
    assert "takes labels" in reasons(FITS["paths"]())[1]
    assert "sensitive_features" in reasons(FITS["parity"]())[0]
    assert "FairPrivateClassifier has no method sample" in reasons(FITS["classifier"]())[0]
    for name in ("sketch", "scaler", "contribution"):
        assert "has no score of its own" in reasons(FITS[name]())[1]
    made = privacy_report(FITS["flow"](), audit=False)
    assert "X_holdout" in made.utility_reason
    assert "X_holdout" in made.membership.reason


def test_attack_through_a_pipeline(monkeypatch):
    import skdpot.audit.report_trials as trials

    drawn = []
    original = trials.synthetic_membership

    def spy(source, *args, **options):
        drawn.append(source.sample(300, random_state=0))
        return original(source, *args, **options)

    monkeypatch.setattr(trials, "synthetic_membership", spy)
    steps = made(PrivateSWAutoencoder, 2, n_steps=5, **BOUNDS), sampler(bounds=(-9, 9))
    report = privacy_report(make_pipeline(*steps).fit(X), X_PUBLIC, audit=False)
    assert drawn[0].shape == (300, 3)
    assert report.membership.found.best.epsilon == pytest.approx(report.spent.epsilon, rel=0.05)
    lost = make_pipeline(PrivateScaler(), SelectKBest(k=2), sampler(bounds=(-9, 9)))
    one_way = make_pipeline(PrivateScaler(), Nystroem(n_components=2), sampler(bounds=(-9, 9)))
    assert not hasattr(one_way[:-1], "inverse_transform")
    report = privacy_report(one_way.fit(X), X_PUBLIC, audit=False)
    assert "inverse_transform" in report.membership.reason
    report = privacy_report(lost.fit(X, Y), X_PUBLIC, y_holdout=Y_PUBLIC, audit=False)
    assert report.membership.found.best.epsilon == math.inf  # SelectKBest has no event


def test_page_without_noise():
    made = privacy_report(SlicedSketch(epsilon=np.inf, **BOUNDS).fit(X), n_canaries=100)
    html, text = made.to_html(), Page(made.to_html()).text
    assert "is δ, the room" not in text
    assert "no privacy is claimed" in text
    assert "Mechanism distribution functions" in text.replace("Mechanismd", "Mechanism d")
    assert "noisy distribution" not in text
    assert "The guarantee holds if they are so" not in text
    assert 'class="box good"' not in html
    facts = json.loads(json.dumps(made.to_dict(), allow_nan=False))
    assert facts["spent"]["epsilon"] == facts["meaning"]["odds_factor"] == "inf"
    value = made.to_frame().set_index(["section", "fact"])["value"]
    assert value["spent", "epsilon"] == math.inf
    with pytest.warns(NotPrivateWarning):
        fit = private_distance("triangle").fit(X)
    text = Page(privacy_report(fit).to_html()).text
    assert "Nothing is listed" in text
    assert "claims no privacy that could be refuted" in text


def test_phases_have_names():
    made = privacy_report(sampler(bounds="private").fit(X), audit=False)
    first, second = made.releases
    assert first.startswith("Histograms of row norms: 1 release")
    assert second.startswith("Distribution functions: 1 release")
    made = privacy_report(FITS["regressor"](), audit=False)
    assert [text.split(":")[0] for text in made.releases] == [
        "Histograms of row norms",
        "Outputs of each group, compared while training",
        "Gradients",
    ]
    made = privacy_report(FITS["pipeline"]().fit(X), audit=False)
    assert made.releases[0].startswith("PrivateScaler: Histograms of distances of pairs: ")
    assert made.releases[2].startswith("DPSlicedFlowSampler: Distribution functions: 1 release")
    assert set(made.releases) <= set(made.to_dict()["releases"])


def test_a_shared_ledger_and_one_without_cap():
    budget = PrivacyBudget(9.0)
    fits = [SlicedSketch(budget=budget, **BOUNDS).fit(X) for _ in range(3)]
    text = Page(privacy_report(fits[0], audit=False).to_html()).text
    total = budget.epsilon_spent()
    assert f"ε = {rounded_up(total)}in all, by the 3 charges" in text
    assert f"one of 3 charges on its ledger, which come to ε = {rounded_up(total)}" in text
    fit = SlicedSketch(budget=PrivacyBudget(np.inf), **BOUNDS).fit(X)
    text = Page(privacy_report(fit, audit=False).to_html()).text
    assert "stays below" not in text
    assert "charges on the ledger" not in text


def test_bounds_of_several_parts_hold_together():
    fit = FITS["pipeline"]().fit(X)
    made = privacy_report(fit, n_canaries=50, confidence=0.9)
    assert [part.result.confidence for part in made.audits] == pytest.approx([0.95, 0.95])
    text = Page(made.to_html()).text
    assert "hold together at 90 % confidence" in text.replace("\xa0", " ")
    one = privacy_report(FITS["flow"](), n_canaries=50, confidence=0.9)
    assert one.audits[0].result.confidence == pytest.approx(0.9)


def test_bounds_are_rounded_down_and_told_apart():
    assert beside_claim(2.999, 3.0) == ("2.99", "3")
    assert beside_claim(1.0004, 1.0) == ("1.0004", "1")
    for shown, claimed in ((1.00049, 1.0), (1.234567, 1.23456), (3.0, 2.9999999)):
        low, claim = beside_claim(shown, claimed)
        assert claimed <= float(claim) < float(low) <= shown
    assert beside_claim(5.099, math.inf) == ("5.09", "∞")
    result = AuditResult(
        confidence=0.95, n_canaries=9, n_guesses=9, n_correct=9, epsilon=0.9286, delta=1e-5,
        right=np.ones(9, bool),
    )  # fmt: skip
    part = PartAudit(name="Fit", result=result)
    assert (
        part.verdict == "Fit: REFUTED: ε ≥ 0.92865 at 95 % confidence, but ε = 0.9286 was claimed."
    )


def test_nothing_shown_is_said_so(fitted):
    made = privacy_report(fitted, n_canaries=3)  # two guesses show nothing at 95 %
    text = Page(made.to_html()).text
    assert "nothing shown" in text
    assert "ε ≥ 0.00is what" not in text


def test_sizes_and_narrow_tables(report):
    facts = report.to_dict()
    assert (facts["n_samples"], facts["n_features"]) == (240, 3)
    assert "Records240" in Page(report.to_html()).text
    assert "Recordsnot kept" in Page(privacy_report(FITS["scaler"](), audit=False).to_html()).text
    html = report.to_html()
    assert 'data-label="found at 1 %"' in html
    assert "content:attr(data-label)" in html


def test_progress_bars(fitted, capsys):
    privacy_report(fitted, n_canaries=20)
    assert capsys.readouterr().err == ""
    privacy_report(fitted, n_canaries=20, verbose=1)
    assert "audits" in capsys.readouterr().err


def test_errors_of_an_audit_are_not_swallowed(monkeypatch, fitted):
    import skdpot.audit.report_trials as audits

    def broken(*args, **kwargs):
        raise ValueError("a defect")

    monkeypatch.setattr(audits, "one_run_audit", broken)
    with pytest.raises(ValueError, match="a defect"):
        privacy_report(fitted)


def test_delta_is_added_to_probabilities_and_bounds_no_ratio():
    """A Gaussian release of ε = 1 is likelier by more than e with probability 16 δ."""
    shown = privacy_report(FITS["sketch"](), audit=False).to_html()
    assert "as probable with a record of yours as with any other record in its place, " in shown
    assert "plus δ" in shown
    assert "What is added to that: a probability of 1 in " in shown


def test_few_others_have_no_rate_at_one_percent():
    X = np.random.default_rng(0).normal(size=(90, 3))
    fitted = flow_sampler(epsilon=5.0, bounds=(-4, 4), n_particles=100, n_steps=5).fit(X)
    assert "too few others" in privacy_report(fitted, X[:60], audit=False).to_html()


def test_a_copy_with_another_claim_says_so():
    X = np.random.default_rng(0).uniform(-1, 1, size=(3000, 3))
    fitted = flow_sampler(
        "resample", sigma=30.0, bounds=(-1, 1), n_steps=3, n_projections=4, batch_size=50
    ).fit(X)
    part = privacy_report(fitted, n_canaries=20).audits[0]
    assert part.result.epsilon > fitted.privacy_spent_.epsilon
    assert "this claim is tested" in part.sight


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
TABLES = {
    "text, dates and missing values": list(TABLE),
    "dates alone": ["day"],
    "one number": ["age"],
    "text alone": ["ward", "note"],
}


@pytest.mark.parametrize("library", ["pandas", "polars"])
@pytest.mark.parametrize("case", TABLES)
def test_tables_of_text_and_dates(case, library):
    """By default, with a hold-out, and with members: nothing of it needs numbers."""
    rows = TABLE[TABLES[case]]
    if library == "polars":
        rows = pytest.importorskip("polars").DataFrame(rows.to_dict("list"))
    synthesizer = DPTableSynthesizer(epsilon=4.0, n_particles=500).fit(rows[:300])
    (audit,) = privacy_report(synthesizer).audits
    assert audit.result.epsilon == 4.0
    assert "numbered by the cells" in audit.sight
    made = privacy_report(synthesizer, rows[300:], X_members=rows[:300])
    text = Page(made.to_html()).text
    assert "Categories: " in text or "Histograms of values: " in text
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
    statement = synthesizer.privacy_spent_
    monkeypatch.setattr(
        "skdpot.audit.report_trials.unpaid_copy",
        lambda part: DPTableSynthesizer(schema, math.inf, n_particles=500),
    )
    (audit,) = privacy_report(synthesizer).audits
    assert audit.result.n_correct >= 0.9 * audit.result.n_guesses
    assert statement.epsilon == 1.0
