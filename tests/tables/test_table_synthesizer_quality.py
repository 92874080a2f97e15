"""How good synthetic tables are, against what is known of the distribution they come from.

The noise is secret. Every threshold is six or more standard deviations away from the mean, over a
dozen fits, of what it bounds; a false alarm is rarer than one run in 10^6.
"""

import math

import numpy as np
import pandas as pd
import pytest

from skdpot import DPTableSynthesizer
from skdpot.metrics import marginal_total_variation
from skdpot.preprocessing import BooleanColumn, CategoricalColumn, NumericColumn, TableSchema

pytestmark = pytest.mark.filterwarnings(
    "ignore:The table is too small:skdpot.exceptions.PrivacyWarning"
)
N_ROWS = 20_000
SCHEMA = TableSchema(
    [
        NumericColumn("age", lower=0, upper=99, integer=True),
        CategoricalColumn("job", categories=list("abcdef")),
        NumericColumn("income", lower=0, upper=1e5),
        CategoricalColumn("grade", categories=[1, 2, 3, 4], ordered=True),
        BooleanColumn("ill"),
        CategoricalColumn("coin", categories=["heads", "tails"]),
    ]
)


def dependent_table(n_rows, seed):
    """Age makes the job, both make the income, income the grade, age and grade illness."""
    rng = np.random.default_rng(seed)
    age = np.clip(rng.normal(45, 18, n_rows), 0, 99).astype(int)
    job = np.clip(age / 20 + rng.normal(0, 0.8, n_rows), 0, 5).astype(int)
    income = np.clip(8000.0 * job + 150.0 * age + rng.normal(5000, 4000, n_rows), 0, 1e5)
    grade = 1 + np.clip(income / 15_000 + rng.normal(0, 0.4, n_rows), 0, 3).astype(int)
    ill = rng.random(n_rows) < 1 / (1 + np.exp(4 - age / 20 + grade / 2))
    return pd.DataFrame(
        {
            "age": age,
            "job": np.array(list("abcdef"))[job],
            "income": income,
            "grade": grade,
            "ill": ill,
            "coin": rng.choice(["heads", "tails"], n_rows),
        }
    )


TABLE, ANOTHER = dependent_table(N_ROWS, 0), dependent_table(N_ROWS, 1)


def fitted(epsilon, table=TABLE, **options):
    return DPTableSynthesizer(SCHEMA, epsilon=epsilon, **options).fit(table)


@pytest.fixture(scope="module")
def one():
    """ε = 1, with noise of the operating system."""
    return fitted(1.0, target="ill")


@pytest.mark.parametrize("target", [None, "ill"])
def test_without_noise_all_pairs_are_right(target):
    drawn = fitted(math.inf, target=target).sample(N_ROWS, random_state=0)
    assert marginal_total_variation(TABLE, drawn) < 0.02
    assert marginal_total_variation(TABLE, drawn, n_way=1) < 0.01


def test_at_epsilon_1_pairs_are_nearly_right(one):
    """Another table of the distribution is .020 away, and shuffled columns .16."""
    drawn = one.sample(N_ROWS)
    assert marginal_total_variation(TABLE, drawn) < 0.04
    assert marginal_total_variation(TABLE, drawn, n_way=1) < 0.02


@pytest.mark.slow
def test_noise_costs_what_it_costs(one):
    """More epsilon, better rows: by the score, for which the rows are public."""
    scores = [fitted(epsilon).score(TABLE) for epsilon in (0.01, 0.2, 5.0)]
    assert scores == sorted(scores)
    assert scores[-1] - scores[0] > 0.1
    assert one.score(TABLE) == pytest.approx(one.score(ANOTHER), abs=0.03)


def test_a_condition_gives_the_conditional_distribution(one):
    """Against the rows themselves that satisfy it; from all rows these are .40 and .27 away."""
    for wanted, rows, limit in (
        ({"grade": 4}, TABLE[TABLE["grade"] == 4], 0.25),
        ({"age": (60, 80)}, TABLE[TABLE["age"].between(60, 80)], 0.1),
    ):
        drawn = one.sample(5000, wanted)
        others = [name for name in SCHEMA.names if name not in wanted]
        assert marginal_total_variation(rows[others], drawn[others], n_way=1) < limit, wanted


def bits(n_columns):
    return TableSchema([BooleanColumn(f"x{j}") for j in range(n_columns)])


def synthetic_bits(codes, **options):
    table = pd.DataFrame(codes.astype(bool), columns=bits(codes.shape[1]).names)
    synthesizer = DPTableSynthesizer(bits(codes.shape[1]), epsilon=1.0, **options).fit(table)
    return synthesizer, synthesizer.sample(len(codes)).to_numpy().astype(int)


@pytest.mark.slow
@pytest.mark.parametrize("target", [None, "x6"])
def test_an_exclusive_or_is_found(target):
    """Of its pairs each is independent; rows of independent columns are .5 away."""
    codes = np.random.default_rng(2).integers(0, 2, (N_ROWS, 8))
    codes[:, 6] = codes[:, 1] ^ codes[:, 4]
    _, drawn = synthetic_bits(codes, target=target)
    assert np.mean(drawn[:, 6] != drawn[:, 1] ^ drawn[:, 4]) < 0.05
    assert abs(drawn[:, [1, 4, 6]].mean() - 0.5) < 0.02


@pytest.mark.slow
def test_the_pairs_of_many_columns_are_found():
    """A chain of 40 columns: neighbours agree in 62 % of the rows, which are .12 from chance."""
    rng = np.random.default_rng(4)
    steps = rng.random((N_ROWS, 40)) < 0.38
    steps[:, 0] = rng.random(N_ROWS) < 0.5
    order = rng.permutation(40)
    codes = np.cumsum(steps, axis=1)[:, order] % 2
    synthesizer, drawn = synthetic_bits(codes, n_particles=20_000)
    place = np.argsort(order)
    due = {tuple(sorted(place[j : j + 2].tolist())) for j in range(39)}
    found = {noisy.marginal.columns for noisy in synthesizer.model_.marginals}
    assert len(due & found) >= 35
    agree = [np.mean(drawn[:, one] == drawn[:, other]) for one, other in due]
    assert abs(np.mean(agree) - 0.62) < 0.02
