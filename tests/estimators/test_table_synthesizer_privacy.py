"""What fits of DPTableSynthesizer cost, when they are charged, and that nothing else gets out."""

import math
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV

from skdpot import DPTableSynthesizer, PrivacyBudget
from skdpot._utils.validation import SecretStream
from skdpot.exceptions import BudgetExceededError, PrivacyWarning
from skdpot.preprocessing import BooleanColumn, CategoricalColumn, NumericColumn, TableSchema
from skdpot.privacy.accounting import compose
from skdpot.privacy.events import NonPrivateEvent
from skdpot.release.contingency import Marginal, NoisyMarginal
from skdpot.release.release import record_releases
from tests.estimators.table_examples import SCHEMA, example_table

pytestmark = [
    pytest.mark.filterwarnings(f"ignore:{text}:skdpot.exceptions.PrivacyWarning")
    for text in ("Private bounds", "Private categories", "The table is too small")
]
TABLE = example_table(400)
SMALL = TABLE[["town", "size", "member"]]
SMALL_SCHEMA = TableSchema([SCHEMA[name] for name in SMALL])
QUICK = {"schema": SMALL_SCHEMA, "n_particles": 200}


def synthesizer(budget=None, **changes):
    return DPTableSynthesizer(budget=budget, **(QUICK | changes))


# --- what is charged ----------------------------------------------------------------------------


@pytest.mark.parametrize("epsilon", [0.2, 1.0, 7.0])
@pytest.mark.parametrize("schema", [SCHEMA, None], ids=["known", "open"])
def test_a_fit_costs_what_it_states(epsilon, schema):
    spent = synthesizer(epsilon=epsilon, schema=schema).fit(TABLE).privacy_spent_
    assert spent.epsilon == epsilon
    assert 0.97 * epsilon < compose(spent.event).epsilon(1e-5) <= epsilon
    assert len(spent.sigma) == len(spent.sensitivity) == len(leaves(spent.event))
    assert any("number of rows" in assumption for assumption in spent.assumptions)
    assert ("private schema" in spent.mechanism) == (schema is None)


@pytest.mark.parametrize("form", ["schema", "path", "str"])
def test_a_guess_that_nobody_confirmed_warns_and_is_assumed(form, tmp_path):
    guess = TableSchema.guess(SMALL)
    guess.to_json(tmp_path / "guess.json")
    path = tmp_path / "guess.json"
    given = {"schema": guess, "path": path, "str": str(path)}[form]
    with pytest.warns(PrivacyWarning, match="DPTableSynthesizer: the schema was guessed from"):
        fitted = synthesizer(schema=given).fit(SMALL)
    assert "the schema, which was guessed from values" in fitted.privacy_spent_.assumptions
    confirmed = synthesizer(schema=guess.confirm()).fit(SMALL)
    assert not any("guessed" in text for text in confirmed.privacy_spent_.assumptions)


def leaves(event):
    parts = getattr(event, "events", None)
    return [event] if parts is None else [leaf for part in parts for leaf in leaves(part)]


@pytest.mark.parametrize("target", [None, "member"])
def test_the_noise_that_is_drawn_is_the_noise_that_is_charged(target):
    """Each release by itself: the squared mu of all its tables is that of its event, or less."""
    with record_releases() as releases:
        fitted = synthesizer(schema=SCHEMA, target=target).fit(TABLE)
    events = leaves(fitted.privacy_spent_.event)
    charged = [event.sensitivity**2 / event.sigma**2 for event in events]
    drawn = [squared_mu(release) for release in releases]
    kinds = [release.kind for release in releases]
    if len(kinds) == 4:  # a tree that gains nothing is charged, and not counted
        kinds.insert(2, "marginals")
        drawn.insert(2, charged[2])
    assert kinds == ["marginals", "misfits", "marginals", "misfits", "marginals"]
    assert drawn == pytest.approx(charged, rel=1e-9)
    assert sum(drawn) <= compose(fitted.privacy_spent_.event).mu_without_sampling ** 2


def squared_mu(release):
    if release.kind == "marginals":
        return sum(2 / sigma**2 for sigma in release.sigma)
    return 4 * len(release.facts["marginals"]) / release.sigma**2


def test_the_marginals_that_are_kept_are_those_that_were_released():
    """What is joined of two releases knows as much as both, and no more."""
    with record_releases() as releases:
        fitted = synthesizer(schema=SCHEMA, target="member").fit(TABLE)
    released = [
        noisy
        for r in releases
        if r.kind == "marginals"
        for noisy in map(NoisyMarginal, r.facts["marginals"], r.value, r.sigma)
    ]
    known = sum(noisy.sigma**-2 for noisy in fitted.marginals_)
    assert known == pytest.approx(sum(noisy.sigma**-2 for noisy in released))
    for noisy in fitted.marginals_:
        parts = [m for m in released if m.marginal == noisy.marginal]
        weights = [part.sigma**-2 for part in parts]
        np.testing.assert_allclose(
            noisy.counts, np.average([part.counts for part in parts], axis=0, weights=weights)
        )


@pytest.mark.parametrize("columns", [["member"], ["town", "size", "member"], list(TABLE)])
def test_the_whole_budget_pays_for_one_fit(columns):
    budget = PrivacyBudget(2.0, 1e-6)
    schema = TableSchema([SCHEMA[name] for name in columns])
    fit = synthesizer(budget, schema=schema, epsilon=2.0, delta=1e-6).fit(TABLE[columns])
    assert budget.remaining() < 0.02
    assert budget.history()["label"].tolist() == ["DPTableSynthesizer"]
    with pytest.raises(BudgetExceededError, match="left"):
        clone(fit).set_params(epsilon=0.1).fit(TABLE[columns])


def test_no_noise_needs_a_budget_without_a_cap():
    with pytest.raises(BudgetExceededError, match="left"):
        synthesizer(PrivacyBudget(1e6), epsilon=math.inf).fit(SMALL)
    unlimited = PrivacyBudget(math.inf)
    fitted = synthesizer(unlimited, epsilon=math.inf).fit(SMALL)
    assert isinstance(fitted.privacy_spent_.event, NonPrivateEvent)
    assert fitted.privacy_spent_.epsilon == math.inf
    assert len(unlimited.history()) == 1


@pytest.mark.parametrize("n_jobs", [1, 2])
def test_a_grid_search_charges_folds_times_candidates_and_the_refit(n_jobs):
    budget = PrivacyBudget(50.0)
    grid = {"target": [None, "member"]}
    search = GridSearchCV(synthesizer(budget), grid, cv=3, n_jobs=n_jobs, error_score="raise").fit(
        SMALL
    )
    history = budget.history()
    assert len(history) == 3 * 2 + 1
    assert set(history["label"]) == {"DPTableSynthesizer"}
    assert search.best_estimator_.budget is budget
    assert -1 <= search.best_score_ <= 0


def test_drawing_scoring_and_reading_are_free():
    budget = PrivacyBudget(5.0)
    fitted = synthesizer(budget).fit(SMALL)
    with record_releases() as releases:
        fitted.sample(10)
        fitted.sample(10, {"member": True})
        fitted.score(SMALL)
        repr(fitted)
    assert releases == []
    assert len(budget.history()) == 1


# --- when it is charged ---------------------------------------------------------------------------


class OrderOfEvents(list):
    """Notes who does what, in which order."""

    def watch(self, monkeypatch, owner, name, note):
        real = getattr(owner, name)

        def watched(*args, **options):
            self.append(note)
            return real(*args, **options)

        monkeypatch.setattr(owner, name, watched)


@pytest.mark.parametrize("schema", [SCHEMA, None], ids=["known", "open"])
def test_the_charge_is_on_the_disk_before_noise_and_rows(tmp_path, monkeypatch, schema):
    from skdpot.estimators import table_synthesizer as module

    budget = PrivacyBudget(5.0, ledger=tmp_path / "study.db")
    order = OrderOfEvents()
    order.watch(monkeypatch, SecretStream, "random_bytes", "noise")
    order.watch(monkeypatch, SecretStream, "random_uint64", "noise")
    order.watch(monkeypatch, Marginal, "cells", "rows")
    order.watch(monkeypatch, module, "_codes", "rows")
    spend = PrivacyBudget.spend

    def spending(self, *args, **options):
        spend(self, *args, **options)
        assert len(PrivacyBudget.from_ledger(tmp_path / "study.db").history()) == 1
        order.append("charge")

    monkeypatch.setattr(PrivacyBudget, "spend", spending)
    synthesizer(budget, schema=schema).fit(TABLE)
    assert order[0] == "charge"
    assert order.count("charge") == 1
    assert {"noise", "rows"} <= set(order)


def test_a_crash_wastes_the_charge_and_never_gives_it_back(monkeypatch):
    from skdpot.tables import fitting

    def crash(*args, **options):
        raise KeyboardInterrupt

    budget = PrivacyBudget(5.0)
    monkeypatch.setattr(fitting, "release_misfits", crash)
    estimator = synthesizer(budget)
    before = dict(vars(estimator))
    with pytest.raises(KeyboardInterrupt):
        estimator.fit(SMALL)
    assert len(budget.history()) == 1
    assert vars(estimator) == before


OPEN = [SCHEMA["size"], SCHEMA["member"]]
REFUSED = {
    "a value of no category": (SMALL.assign(size="XXL"), {}, "'size' holds a value that is not"),
    "a missing value": (TABLE.assign(age=np.nan), {"schema": SCHEMA}, "'age' has missing values"),
    "a column too few": (SMALL[["town"]], {}, "describes 'size'"),
    "a column too many": (SMALL.assign(more=1), {}, "does not describe: 'more'"),
    "no number": (TABLE.assign(age="x"), {"schema": SCHEMA}, "Column 'age'"),
    "infinity": (TABLE.assign(income=np.inf), {"schema": SCHEMA}, "'income' holds infinity"),
    "no such target": (SMALL, {"target": "height"}, "target='height' is not a column of the table"),
    "too few rows": (SMALL.iloc[:1], {}, "minimum of 2 rows"),
    "no rows": (SMALL.iloc[:0], {}, "0 sample"),
    "no columns": (SMALL[[]], {"schema": None}, "0 feature"),
    "noise too small": (SMALL, {"epsilon": 1e5}, "protects nothing"),
    "noise too large": (SMALL, {"epsilon": 1e-9, "delta": 1e-15}, "No noise"),
    "text as a number": (SMALL.assign(town=1), {"schema": None, "target": 3}, "'target' parameter"),
    "things that are no categories": (
        SMALL.assign(town=[[1]] * 400), {"schema": TableSchema([CategoricalColumn("town"), *OPEN])},
        "'town' holds something that is neither",
    ),
    **{f"{name} {value}": (SMALL, {name: value}, f"'{name}' parameter") for name, value in (
        ("epsilon", 0.0), ("epsilon", math.nan), ("delta", 2.0), ("n_particles", 5),
        ("schema", [3]), ("budget", 1.0),
    )},
    "a file": ("table.csv", {}, "read it first, for instance with pandas.read_csv"),
    "a path": (Path("table.csv"), {}, "read it first"),
    "a mapping": (SMALL.to_dict("list"), {}, "X must be a DataFrame"),
    "records": (SMALL.to_dict("records"), {}, "X must be a DataFrame"),
    "nothing": (None, {}, "Expected 2D array"),
    "texts": ([["a", "b"], ["c", "d"]], {"schema": None}, "X must be a DataFrame"),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_a_refused_fit_charges_nothing_and_changes_nothing(case):
    table, changes, message = REFUSED[case]
    budget = PrivacyBudget(1e7, 1e-3)
    fitted = synthesizer(budget).fit(SMALL)
    for estimator in (fitted.set_params(**changes), synthesizer(**{"budget": budget} | changes)):
        before = dict(vars(estimator))
        with pytest.raises((ValueError, TypeError), match=message):
            estimator.fit(table)
        assert len(budget.history()) == 1
        assert vars(estimator) == before


def test_a_fit_that_cannot_be_paid_changes_nothing():
    budget = PrivacyBudget(1.0)
    fitted = synthesizer(budget).fit(SMALL)
    before = dict(vars(fitted))
    with pytest.raises(BudgetExceededError, match="left"):
        fitted.fit(SMALL.iloc[:100])
    assert vars(fitted) == before
    assert len(budget.history()) == 1


def test_budgets_of_another_relation_are_refused():
    budget = PrivacyBudget(10.0, relation="add_or_remove_one")
    with pytest.raises(ValueError, match="relation"):
        synthesizer(budget).fit(SMALL)
    assert len(budget.history()) == 0


# --- nothing else gets out ------------------------------------------------------------------------

N = 400
NUMBERS = np.random.default_rng(5).uniform(0, 1e6, N)
NUMBERS[17] = 314159.2653
SECRET = "Xanthippe"
LEAKY = pd.DataFrame(
    {
        "number": NUMBERS,
        "whole": np.random.default_rng(6).integers(0, 10**6, N),
        "clerk": [SECRET if i == 17 else ("Anna", "Ben", "Cleo")[i % 3] for i in range(N)],
        "flag": np.arange(N) % 5 == 0,
    }
)
LEAKY.loc[17, "whole"] = 271828
LEAKY_SCHEMA = TableSchema(
    [
        NumericColumn("number", lower=0, upper=1e6),
        NumericColumn("whole", lower=0, upper=10**6),
        CategoricalColumn("clerk", categories=["Anna", "Ben", "Cleo"], other="somebody"),
        BooleanColumn("flag"),
    ]
)
HIDDEN = ("314159", "271828", SECRET)


def leaky(schema, **options):
    estimator = DPTableSynthesizer(
        schema, epsilon=4.0, budget=PrivacyBudget(9.0), n_particles=300, **options
    )
    return estimator.fit(LEAKY)


@pytest.mark.parametrize("schema", [LEAKY_SCHEMA, None])
def test_a_person_alone_in_a_category_is_never_drawn(schema):
    drawn = leaky(schema, target="flag").sample(20_000)
    assert SECRET not in set(drawn["clerk"])


def test_warnings_and_progress_hold_no_value_of_a_person(recwarn, capsys):
    leaky(None, verbose=1, random_state=0)
    shown = "".join(map(str, (w.message for w in recwarn))) + "".join(capsys.readouterr())
    assert "synthesizer" in shown
    for hidden in HIDDEN:
        assert hidden not in shown


ERRORS = {
    "a value of no category": CategoricalColumn("clerk", categories=["Anna", "Ben", "Cleo"]),
    "text as a number": NumericColumn("clerk"),
    "a number of no category": CategoricalColumn("whole", categories=[1, 2]),
}


@pytest.mark.parametrize("case", ERRORS)
def test_errors_quote_no_value_of_a_person(case):
    with pytest.raises(ValueError, match="Column '(clerk|whole)'") as caught:
        DPTableSynthesizer(LEAKY_SCHEMA.replace(ERRORS[case])).fit(LEAKY)
    error = caught.value
    while error is not None:
        for hidden in HIDDEN:
            assert hidden not in str(error)
        error = error.__cause__ or error.__context__


def test_the_same_rows_give_other_counts_every_time():
    first, second = (
        np.concatenate([noisy.counts for noisy in synthesizer().fit(SMALL).marginals_[:3]])
        for _ in range(2)
    )
    assert np.mean(first == second) < 0.5
