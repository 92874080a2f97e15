"""What fits of tables refuse, what a synthesizer states and keeps, and that nothing else gets out.

What fits are charged, and when: `test_charges`, `tests/contract/test_draws_are_charged`.
"""

import math
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from skdpot import DPTableSynthesizer, PrivacyBudget
from skdpot.exceptions import PrivacyWarning
from skdpot.preprocessing import (
    BooleanColumn,
    CategoricalColumn,
    NumericColumn,
    TableEncoder,
    TableSchema,
)
from skdpot.release.gate import record_releases
from skdpot.tables.contingency import NoisyMarginal
from skdpot.tables.marginal_release import tables_of
from tests.contract.fuzz_harness import chain
from tests.tables.table_models import SCHEMA, people

pytestmark = [
    pytest.mark.filterwarnings(f"ignore:{text}:skdpot.exceptions.PrivacyWarning")
    for text in ("Private bounds", "Private categories", "The table is too small")
]
TABLE = people(400)
SMALL = TABLE[["city", "size", "smokes"]]
SMALL_SCHEMA = TableSchema([SCHEMA[name] for name in SMALL])
QUICK = {"schema": SMALL_SCHEMA, "n_particles": 200}


def synthesizer(budget=None, **changes):
    return DPTableSynthesizer(budget=budget, **(QUICK | changes))


# --- what is charged ----------------------------------------------------------------------------


@pytest.mark.parametrize("form", ["schema", "path", "str"])
def test_a_guess_that_nobody_confirmed_warns_and_is_assumed(form, tmp_path):
    guess = TableSchema.guess(SMALL)
    guess.to_json(tmp_path / "guess.json")
    path = tmp_path / "guess.json"
    given = {"schema": guess, "path": path, "str": str(path)}[form]
    with pytest.warns(PrivacyWarning, match="DPTableSynthesizer: the schema was guessed from"):
        fitted = synthesizer(schema=given).fit(SMALL)
    assert "the schema, which was guessed from values" in fitted.privacy_spent_.assumptions
    confirmed = synthesizer(schema=guess.confirm()).fit(SMALL).privacy_spent_
    assert not any("guessed" in text for text in confirmed.assumptions)
    assert any("number of rows" in text for text in confirmed.assumptions)
    assert "private schema" not in confirmed.mechanism


CONSTANTS = {
    "country": CategoricalColumn("country", categories=["DE"]),
    "year": NumericColumn("year", lower=2024, upper=2024, integer=True),
}


@pytest.mark.filterwarnings("ignore:.*random_state:skdpot.exceptions.PrivacyWarning")
def test_nothing_is_spent_on_columns_with_one_value(tmp_path):
    schema = TableSchema([CONSTANTS["country"], *SMALL_SCHEMA, CONSTANTS["year"]])
    table = SMALL.assign(country="DE", year=2024)[list(schema.names)]
    more, less = (
        synthesizer(schema=s, random_state=0).fit(t)
        for s, t in ((schema, table), (SMALL_SCHEMA, SMALL))
    )
    assert more.privacy_spent_.event == less.privacy_spent_.event
    for one, other in zip(more.marginals_, less.marginals_, strict=True):
        pd.testing.assert_frame_equal(one, other)
    more.save(tmp_path / "fit.safetensors")
    for fitted in (more, DPTableSynthesizer.load(tmp_path / "fit.safetensors")):
        rows = fitted.sample(50, random_state=0)
        assert list(rows) == list(table)
        assert (rows["country"] == "DE").all()
        assert (rows["year"] == 2024).all()
        pd.testing.assert_frame_equal(rows[list(SMALL)], less.sample(50, random_state=0))
        assert len(fitted.sample(5, conditions={"country": "DE", "year": (2000, 2030)})) == 5
        for wanted in ({"country": "FR"}, {"year": 2023}, {"year": None}):
            with pytest.raises(ValueError, match="country|year"):
                fitted.sample(5, conditions=wanted)
        assert fitted.score(table) == pytest.approx(less.score(SMALL), abs=0.3)
        assert fitted.quality_report(n_samples=200).summary["columns"] == 3
    alone = TableSchema(list(CONSTANTS.values()))  # something has to be counted
    rows = synthesizer(schema=alone).fit(table[["country", "year"]]).sample(4)
    assert rows.to_numpy().tolist() == [["DE", 2024]] * 4
    with pytest.raises(ValueError, match="'year' has one possible value"):
        synthesizer(schema=schema, target="year").fit(table)


def test_the_marginals_that_are_kept_are_those_that_were_released():
    """What is joined of two releases knows as much as both, and no more."""
    with record_releases() as releases:
        fitted = synthesizer(schema=SCHEMA, target="smokes").fit(TABLE)
    released = [
        noisy
        for r in releases
        if r.kind == "marginals"
        for noisy in map(NoisyMarginal, r.facts["marginals"], r.value, r.sigma)
    ]
    rounds = [tables_of(release) for release in fitted.releases_[: fitted.model_.n_rounds - 1]]
    joined = (*fitted.model_.columns, *fitted.model_.marginals)
    known = sum(noisy.sigma**-2 for part in (*rounds, joined) for noisy in part)
    assert known == pytest.approx(sum(noisy.sigma**-2 for noisy in released))
    for noisy in joined:
        parts = [m for m in released if m.marginal == noisy.marginal]
        weights = [part.sigma**-2 for part in parts]
        np.testing.assert_allclose(
            noisy.counts, np.average([part.counts for part in parts], axis=0, weights=weights)
        )


SECRET = "Xanthippe"
OPEN = [SCHEMA["size"], SCHEMA["smokes"]]
REFUSED = {
    "a value of no category": (SMALL.assign(size=SECRET), {}, "'size' holds a value that is not"),
    "a missing value": (TABLE.assign(age=np.nan), {"schema": SCHEMA}, "'age' has missing values"),
    "a text as a truth value": (
        SMALL.assign(smokes=[SECRET, *[True] * 399]), {}, "'smokes' must hold True and False",
    ),
    "a column too few": (SMALL[["city"]], {}, "describes 'size'"),
    "a column too many": (SMALL.assign(more=1), {}, "does not describe: 'more'"),
    "no number": (TABLE.assign(age=SECRET), {"schema": SCHEMA}, "Column 'age'"),
    "infinity": (TABLE.assign(income=np.inf), {"schema": SCHEMA}, "'income' holds infinity"),
    "no such target": (SMALL, {"target": "height"}, "target='height' is not a column of the table"),
    "too few rows": (SMALL.iloc[:1], {"schema": None}, "minimum of 2"),
    "no rows": (SMALL.iloc[:0], {}, "0 sample"),
    "no columns": (SMALL[[]], {"schema": None}, "0 feature"),
    "noise too small": (SMALL, {"epsilon": 1e5}, "protects nothing"),
    "noise too large": (SMALL, {"epsilon": 1e-9, "delta": 1e-15}, "No noise"),
    "text as a number": (SMALL.assign(city=1), {"schema": None, "target": 3}, "'target' parameter"),
    "things that are no categories": (
        SMALL.assign(city=[[SECRET]] * 400),
        {"schema": TableSchema([CategoricalColumn("city"), *OPEN])},
        "'city' holds something that is neither",
    ),
    **{f"{name} {value}": (SMALL, {name: value}, f"'{name}' parameter") for name, value in (
        ("epsilon", 0.0), ("epsilon", math.nan), ("delta", 2.0), ("n_particles", 5),
        ("schema", [3]), ("budget", 1.0),
    )},
    "a file that is not there": (Path("table.csv"), {}, "No file exists"),
    "a mapping": (SMALL.to_dict("list"), {}, "X must be a DataFrame"),
    "records": (SMALL.to_dict("records"), {}, "X must be a DataFrame"),
    "nothing": (None, {}, "Expected 2D array"),
    "texts": ([["a", "b"], ["c", "d"]], {"schema": None}, "X must be a DataFrame"),
}  # fmt: skip


ALIKE = [case for case, (_, changes, _) in REFUSED.items() if not changes.keys() - {"schema"}]
WHO = [*(("synthesizer", case) for case in REFUSED), *(("encoder", case) for case in ALIKE)]


@pytest.mark.parametrize(("who", "case"), WHO, ids=[f"{who}, {case}" for who, case in WHO])
def test_a_refused_fit_charges_and_changes_nothing_and_quotes_no_value(who, case):
    table, changes, message = REFUSED[case]
    budget = PrivacyBudget(1e7, 1e-3)

    def made(**options):
        if who == "encoder":
            return TableEncoder(**{"schema": SMALL_SCHEMA, "budget": budget} | options)
        return synthesizer(**{"budget": budget} | options)

    fitted = made().fit(SMALL)
    charged = len(budget.history())
    for estimator in (fitted.set_params(**changes), made(**changes)):
        before = dict(vars(estimator))
        with pytest.raises((ValueError, TypeError, OSError), match=message) as caught:
            estimator.fit(table)
        assert len(budget.history()) == charged
        assert vars(estimator) == before
        assert SECRET not in "".join(map(repr, chain(caught.value)))


# --- nothing else gets out ------------------------------------------------------------------------

N = 400
NUMBERS = np.random.default_rng(5).uniform(0, 1e6, N)
NUMBERS[17] = 314159.2653
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
