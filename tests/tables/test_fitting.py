"""From rows to a model: what is planned and charged, chosen and released."""

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest
from scipy.optimize import minimize

from skdpot._utils.streams import SecretStream
from skdpot.exceptions import CalibrationError
from skdpot.preprocessing import BooleanColumn, TableSchema
from skdpot.privacy.accounting import compose
from skdpot.privacy.choices import ChoiceEvent
from skdpot.privacy.events import GaussianEvent, NonPrivateEvent
from skdpot.privacy.noise import lattice_noise, noise_lattice
from skdpot.privacy.targets import PrivacyTarget, SingleFitTarget
from skdpot.tables import plan
from skdpot.tables.candidates import (
    NOISE_COST,
    TARGET_IMPORTANCE,
    Candidates,
    choose,
    choose_tree,
    sampling_misfit,
)
from skdpot.tables.cells import ROUNDS
from skdpot.tables.contingency import Marginal
from skdpot.tables.marginal_release import misfit_sensitivity
from skdpot.tables.plan import plan_marginals
from tests.tables.table_models import SCHEMA, people

KNOWN, OPEN = SCHEMA, TableSchema.from_dtypes(people(5))
ONE = TableSchema([KNOWN["city"]])
TWO = TableSchema([KNOWN["city"], KNOWN["age"]])
MANY = TableSchema([BooleanColumn(f"answer {j}") for j in range(35)])
SCHEMAS = {
    "known": KNOWN, "open": OPEN, "one column": ONE, "two columns": TWO, "many columns": MANY
}  # fmt: skip
TARGET = SingleFitTarget(1.0, 1e-5)
PLAN = plan_marginals(TARGET, KNOWN, 1000)


def leaves(event):
    parts = getattr(event, "events", None)
    return [event] if parts is None else [leaf for part in parts for leaf in leaves(part)]


# --- what is planned ------------------------------------------------------------------------------


@pytest.mark.parametrize("schema", SCHEMAS)
@pytest.mark.parametrize(("epsilon", "delta"), [(0.1, 1e-6), (1.0, 1e-5), (10.0, 1e-9)])
@pytest.mark.parametrize("target", [SingleFitTarget, PrivacyTarget])
def test_a_plan_costs_what_was_asked_and_no_less(schema, epsilon, delta, target):
    plan = plan_marginals(target(epsilon, delta), SCHEMAS[schema], 1000)
    assert 0.97 * epsilon < compose(plan.event).epsilon(delta) <= epsilon
    events = leaves(plan.event)[-len(plan.shares) :]
    for event, share in zip(events, plan.shares.values(), strict=True):
        assert event.sigma == plan.sigma
        assert (event.mu * event.sigma) ** 2 == pytest.approx(share, rel=1e-3)
        if type(event) is not ChoiceEvent:
            assert type(event) is GaussianEvent
            assert event.sensitivity**2 == pytest.approx(share, rel=1e-15)
            assert event.lattice == event.sigma / 16
    assert sum(plan.shares.values()) == pytest.approx(1.0)
    n_releases = {"one column": 1, "two columns": 3, "many columns": 7}.get(schema, 6 + len(ROUNDS))
    assert len(plan.shares) == n_releases


def test_what_is_not_known_gets_a_fifth_at_most():
    plan = plan_marginals(TARGET, OPEN, 1000)
    first, whole = (
        compose(event).mu_without_sampling ** 2 for event in (plan.schema.event, plan.event)
    )
    assert first / whole == pytest.approx(0.2 * 6 / 7, rel=0.02)
    assert PLAN.schema.event is None


@pytest.mark.parametrize("weights", [np.ones(1), np.ones(7), np.array([0.1, 3.0, 500.0])])
@pytest.mark.parametrize("release", PLAN.shares)
def test_marginals_of_a_release_cost_its_share_together(release, weights):
    sigmas = PLAN.marginal_sigmas(release, weights)
    assert sigmas.shape == weights.shape
    assert np.sum(2 / sigmas**2) == pytest.approx(PLAN.shares[release] / PLAN.sigma**2, rel=1e-12)
    np.testing.assert_allclose(sigmas**-2 / weights, sigmas[0] ** -2 / weights[0])


@pytest.mark.parametrize("n_marginals", [1, 3, 500])
@pytest.mark.parametrize("release", ["independence", "misfit"])
def test_misfits_cost_their_share(release, n_marginals):
    marginals = [pair_of((0, 1), (2, 2))] * n_marginals
    mu = misfit_sensitivity(marginals) / PLAN.misfit_sigma(release, marginals)
    assert mu**2 == pytest.approx(PLAN.shares[release] / PLAN.sigma**2, rel=1e-12)


def test_epsilon_infinity_needs_no_noise():
    plan = plan_marginals(SingleFitTarget(math.inf, 1e-5), KNOWN, 1000)
    assert isinstance(plan.event, NonPrivateEvent)
    assert plan.marginal_sigmas("tree", np.ones(2)).tolist() == [0.0, 0.0]
    assert plan.misfit_sigma("misfit", [pair_of((0, 1), (2, 2))]) == 0.0


@pytest.mark.parametrize(
    ("epsilon", "delta", "message"),
    [(1e5, 1e-5, "protects nothing"), (1e-9, 1e-15, "too wide"), (1e-14, 1e-17, "No noise")],
)
def test_noise_that_cannot_be_drawn_is_refused_beforehand(epsilon, delta, message):
    with pytest.raises(CalibrationError, match=message):
        plan_marginals(SingleFitTarget(epsilon, delta), KNOWN, 1000)


@pytest.mark.parametrize("n_columns", [2, 40])
def test_what_is_not_refused_can_be_drawn(n_columns):
    """At the largest sigma, the share of the smallest table beside all others at their largest."""
    wide = replace(PLAN, sigma=plan._LARGEST_SIGMA / n_columns)
    n_pairs = n_columns * (n_columns - 1) // 2
    weights = np.array([1.0, *[(4.0 * 65 * 65) ** (2 / 3)] * (n_pairs - 1)])
    least = "misfit"
    for sigma in (
        wide.marginal_sigmas(least, weights)[0],
        wide.misfit_sigma(least, [pair_of((0, 1), (2, 2))] * 2 * n_pairs),
        wide.marginal_sigmas("columns", np.ones(n_columns))[0],
    ):
        lattice = noise_lattice(sigma, 1 / 16)
        drawn = lattice_noise(sigma, 3, SecretStream(), lattice=lattice, mu=1.0)
        assert drawn.shape == (3,)


# --- what is chosen -------------------------------------------------------------------------------


def pair_of(columns, shape, level=0):
    return Marginal(columns, tuple(np.arange(size) for size in shape), levels=(level,) * 2)


def random_candidates(seed, n_pairs=8):
    rng = np.random.default_rng(seed)
    pairs = list(itertools.combinations(range(5), 2))[:n_pairs]
    marginals = tuple(pair_of(pair, rng.integers(2, 20, 2)) for pair in pairs)
    importance = np.where(rng.random(n_pairs) < 0.3, TARGET_IMPORTANCE, 1.0)
    return Candidates(marginals, rng.exponential(300, n_pairs) - 50, importance)


@pytest.mark.parametrize("seed", range(4))
def test_the_shares_make_the_noise_least(seed):
    """Of sum(importance * cells * sigma), sigma the power -1/2 of a share; by scipy."""
    candidates = random_candidates(seed, 5)
    wrong = candidates.importance * candidates.n_cells

    def noise(logits):
        shares = np.exp(logits) / np.exp(logits).sum()
        return float(np.sum(wrong / np.sqrt(shares)))

    best = minimize(noise, np.zeros(5), method="Nelder-Mead", options={"maxiter": 20_000})
    assert noise(np.log(candidates.weights)) <= best.fun * (1 + 1e-6)


@pytest.mark.parametrize("n_rows", [50, 5000])
def test_the_misfit_of_chance_is_what_chance_gives(n_rows):
    rng = np.random.default_rng(0)
    shares = rng.dirichlet(np.ones(12))
    tables = rng.multinomial(n_rows, shares, size=4000)
    simulated = np.abs(tables - n_rows * shares).sum(axis=1).mean()
    assert sampling_misfit(n_rows * shares, n_rows) == pytest.approx(simulated, rel=0.1)


@pytest.mark.parametrize("sigma", [0.5, 2.0, 5.0, 20.0])
def test_the_choice_is_nearly_the_best_of_all(sigma):
    """Every subset is tried: the order of gain per size misses the best by little."""
    ratios = []
    for seed in range(25):
        candidates = random_candidates(seed)
        sizes = (candidates.importance * candidates.n_cells) ** (2 / 3)
        left_out = np.maximum(candidates.importance * candidates.misfits, 0.0)

        def cost(chosen, sizes=sizes, left_out=left_out):
            """Return the rows that noise puts wrong in what is released, the model in the rest."""
            noise = NOISE_COST * sigma * sizes[chosen].sum() ** 1.5
            return noise + left_out[~chosen].sum()

        taken = choose(candidates, sigma).marginals
        chosen = np.array([marginal in taken for marginal in candidates.marginals])
        subsets = map(np.array, itertools.product([False, True], repeat=8))
        ratios.append(cost(chosen) / min(cost(subset) for subset in subsets if any(subset)))
    assert max(ratios) < 1.25
    assert np.mean(ratios) < 1.01


def test_the_tree_takes_what_gains_and_the_pairs_with_the_target():
    columns = list(itertools.combinations(range(4), 2))
    marginals = tuple(pair_of(pair, (3, 3)) for pair in columns)
    misfits = dict.fromkeys(columns, -10.0) | {(0, 1): 500.0, (1, 2): 400.0, (0, 3): 300.0}
    candidates = Candidates(marginals, np.array([misfits[pair] for pair in columns]), np.ones(6))
    for target, inside in ((None, {0, 1, 2, 3}), (3, {0, 1, 2})):
        nodes, choice = choose_tree(candidates, 4, target, 1.0)
        assert {m.columns for m in choice.marginals} == {(0, 1), (1, 2), (0, 3)}
        assert {node.column for node in nodes} == inside
    nodes, choice = choose_tree(replace(candidates, misfits=np.full(6, -5.0)), 4, 3, 1.0)
    assert choice is None  # nothing gains
    assert [node.parent for node in nodes] == [None] * 3
