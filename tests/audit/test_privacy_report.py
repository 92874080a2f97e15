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
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LinearRegression
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline

import skdpot.slicing.sketch as sketch_module
from skdpot import (
    ClientContribution,
    DPSlicedFlowSampler,
    DPSlicedGenerator,
    FairPrivateClassifier,
    FairPrivateRegressor,
    PrivacyBudget,
    PrivateScaler,
    PrivateSWAutoencoder,
    PrivateTrajectorySampler,
    PrivateWassersteinDistance,
    SlicedSketch,
)
from skdpot.audit.made_up_rows import make_up_rows
from skdpot.audit.report import privacy_report
from skdpot.audit.report_audit import unpaid_copy
from skdpot.audit.report_words import event_in_words, meaning_of, one_in, percent_at_most
from skdpot.exceptions import NotPrivateWarning, PrivacyWarning
from skdpot.privacy.events import (
    ComposedEvent,
    FixedSizeGaussianEvent,
    GaussianEvent,
    NonPrivateEvent,
    PoissonGaussianEvent,
    PoissonRowsGaussianEvent,
)
from skdpot.privacy.gdp import gdp_mu
from skdpot.privacy.relation import Relation
from skdpot.privacy.spent import PrivacySpent

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
    return DPSlicedFlowSampler(**({"n_steps": 10} | BOUNDS | options))


FITS = {
    "sketch": lambda: SlicedSketch(**BOUNDS).fit(X),
    "classes": lambda: SlicedSketch(conditional=True, **BOUNDS).fit(X, Y),
    "flow": lambda: sampler().fit(X),
    "flow of classes": lambda: sampler(conditional=True).fit(pd.DataFrame(X, columns=[*"abc"]), Y),
    "rows": lambda: sampler(mechanism="presample").fit(X),
    "generator": lambda: DPSlicedGenerator(n_steps=5, **BOUNDS).fit(X),
    "autoencoder": lambda: PrivateSWAutoencoder(2, n_steps=5, **BOUNDS).fit(X),
    "parity": lambda: PrivateSWAutoencoder(2, n_steps=5, penalty="parity", **BOUNDS).fit(
        X, sensitive_features=GROUPS
    ),
    "public": lambda: PrivateSWAutoencoder(2, n_steps=5, private=False).fit(X),
    "classifier": lambda: FairPrivateClassifier(n_steps=5, alpha=0.0).fit(X, Y),
    "fair": lambda: FairPrivateClassifier(n_steps=5).fit(
        X, np.array(["no", "yes"])[Y], sensitive_features=GROUPS
    ),
    "regressor": lambda: FairPrivateRegressor(n_steps=5).fit(X, X[:, 1], sensitive_features=GROUPS),
    "distance": lambda: PrivateWassersteinDistance(**BOUNDS).fit(X),
    "contribution": lambda: ClientContribution(PrivateWassersteinDistance(**BOUNDS)).fit(X),
    "paths": lambda: PrivateTrajectorySampler(**BOUNDS).fit(X, np.arange(240) % 3),
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
    assert all(part.startswith(".skdpot-report") for rule in rules for part in rule.split(","))


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
    assert facts["privacy"]["epsilon"] == 1.0
    assert facts["privacy"]["relation"] == "replace_one"
    assert facts["privacy"]["assumptions"] == list(fitted.privacy_spent_.assumptions)
    (budget,) = facts["budgets"]
    assert budget["epsilon"] == 2.0
    assert budget["spent"] == pytest.approx(1.0)
    assert [charge["label"] for charge in budget["history"]] == ["DPSlicedFlowSampler"]
    (audit,) = facts["audit"]
    assert audit["claimed_epsilon"] == 1.0
    assert audit["canaries"] == 100
    assert not audit["refuted"]
    assert len(facts["membership"]["attacks"]) == 5
    assert facts["membership"]["closest_record_share"]["expected"] == pytest.approx(2 / 3)
    names = [figure["name"] for figure in facts["utility"]]
    assert len(names) == 6
    assert facts["utility"][3]["value"] <= 1.0
    table = report.to_frame()
    assert list(table) == ["section", "fact", "value"]
    value = table.set_index(["section", "fact"])["value"]
    assert value["privacy", "epsilon"] == 1.0
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
            FixedSizeGaussianEvent(
                batch_sizes=(20, 30), group_sizes=(100, 1500), n_steps=7, **noise
            ),
            PoissonGaussianEvent(sampling_rate=0.25, n_steps=1000, **noise),
            PoissonRowsGaussianEvent(sampling_rate=0.5, n_samples=100, n_steps=2, **noise),
            ComposedEvent(events=(NonPrivateEvent(),)),
        )
    )
    words = event_in_words(event)
    assert len(words) == 6
    assert words[0].startswith("1 release, of numbers computed from all records: every number has ")
    assert "standard deviation 2, and replacing one record moves" in words[0]
    assert words[1].startswith("3 releases")
    assert "20 + 30 records drawn afresh and secretly from 100 + 1,500" in words[2]
    assert words[3].startswith("1,000 releases")
    assert "with probability 0.25" in words[3]
    assert "one vector a record of a secret sample" in words[4]
    assert words[5] == "Something was released without any noise."
    (other,) = event_in_words(GaussianEvent(relation=Relation.ADD_REMOVE, **noise))
    assert "adding or removing one record" in other


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
        fit = PrivateWassersteinDistance("triangle").fit(X)
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
    fit = SlicedSketch(delta=1 / 240, budget=budget, **BOUNDS).fit(X)
    ((level, text),) = warnings_of(fit)
    assert level == "stop"
    assert "below 1/n for n = 240" in text
    # Sizes are read from events too; where nobody knows them, the reader is asked to look.
    assert not any("is not known here" in text for _, text in warnings_of(FITS["parity"]()))
    assert any("is not known here" in text for _, text in warnings_of(FITS["scaler"]()))


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
    assert made.to_dict()["audit"][0]["not_audited_because"]
    assert (
        "None was asked for" in Page(privacy_report(FITS["scaler"](), audit=False).to_html()).text
    )


def test_rows_for_the_audit_are_made_up():
    rng = np.random.default_rng(0)
    rows = make_up_rows(FITS["flow of classes"](), 50, rng)
    assert rows.X.shape == (50, 3)
    assert set(rows.y) <= {0, 1}
    rows = make_up_rows(FITS["paths"](), 50, rng)
    assert rows.X.shape == (51, 3)
    np.testing.assert_array_equal(np.unique(rows.y), [0, 1, 2])
    rows = make_up_rows(FITS["fair"](), 50, rng)
    assert set(rows.y) == {"no", "yes"}
    assert set(rows.fit_params["sensitive_features"]) == {0, 1}
    assert len(set(zip(rows.y, rows.fit_params["sensitive_features"], strict=True))) == 4
    rows = make_up_rows(FITS["regressor"](), 50, rng)
    assert rows.y.shape == (50,)
    rows = make_up_rows(FITS["parity"](), 50, rng)
    assert set(rows.fit_params["sensitive_features"]) == {0, 1}
    for name in ("sketch", "distance"):
        rows = make_up_rows(FITS[name](), 50, rng)
        assert np.abs(rows.X).max() <= 1
        assert rows.y is None
    rows = make_up_rows(FITS["scaler"](), 50, rng)
    assert rows.X.shape == (50, 3)
    assert not {tuple(row) for row in rows.X} & {tuple(row) for row in X}


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
    json.dumps(made.to_dict())
    assert len(made.to_frame()) > 20
    assert made.audits or not audited
    samples = hasattr(fit, "sample") and name != "paths"
    assert (made.membership.found is not None) == (samples and name != "parity")
    assert made.membership.reason or made.membership.found
    scored = hasattr(fit, "score")
    assert bool(made.utility) == scored


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
