"""Evidence that is added up release by release is that of all releases side by side."""

import numpy as np
import pytest
from scipy.sparse import csr_array

from skdpot.audit.matched_filter import EvidenceSum


def _releases() -> list[tuple[np.ndarray, np.ndarray, float]]:
    rng = np.random.default_rng(0)
    sizes = ((7, 0.5), (3, 2.0), (20, 1.0))
    return [(rng.normal(size=k), rng.normal(size=(5, k)), sigma) for k, sigma in sizes]


@pytest.mark.parametrize("form", [np.asarray, csr_array])
def test_the_sum_is_the_evidence_of_all_numbers_side_by_side(form: type) -> None:
    evidence = EvidenceSum(5)
    for residual, differences, sigma in _releases():
        evidence.add(residual, form(differences), sigma)
    together = EvidenceSum(5)
    together.add(
        np.concatenate([residual / sigma for residual, _, sigma in _releases()]),
        np.concatenate([differences / sigma for _, differences, sigma in _releases()], axis=1),
        1.0,
    )
    np.testing.assert_allclose(evidence.scores(), together.scores(), rtol=1e-9)


def test_a_release_of_some_pairs_tells_nothing_of_the_others() -> None:
    residual, differences, sigma = _releases()[0]
    some, every = EvidenceSum(5), EvidenceSum(5)
    some.add(residual, differences[[1, 3]], sigma, np.array([1, 3]))
    alone = np.zeros_like(differences)
    alone[[1, 3]] = differences[[1, 3]]
    every.add(residual, alone, sigma)
    np.testing.assert_allclose(some.scores(), every.scores(), atol=1e-12)
    assert np.all(some.scores()[[0, 2, 4]] == 0)


def test_without_noise_the_equations_are_solved() -> None:
    rng = np.random.default_rng(1)
    coins, differences = np.sign(rng.normal(size=30)), rng.normal(size=(30, 40))
    evidence = EvidenceSum(30)
    evidence.add(coins @ differences / 2, differences, 0.0)
    np.testing.assert_allclose(evidence.scores(), coins, atol=1e-4)


@pytest.mark.parametrize("factor", [0.02, 1.0, 30.0])
def test_the_noise_is_learned_where_the_statement_is_wrong(factor: float) -> None:
    rng = np.random.default_rng(2)
    coins, differences = np.sign(rng.normal(size=60)), rng.normal(size=(60, 200))
    residual = coins @ differences / 2 + 0.8 * rng.normal(size=200)
    stated, true = EvidenceSum(60), EvidenceSum(60)
    stated.add(residual, differences, 0.8 * factor)
    true.add(residual, differences, 0.8)
    np.testing.assert_allclose(stated.scores(), true.scores(), rtol=1e-6)
    # With few numbers there is nothing to learn from: the statement is taken.
    few = EvidenceSum(60)
    few.add(residual[:100], differences[:, :100], 0.8 * factor)
    system = differences[:, :100] @ differences[:, :100].T / 4 + (0.8 * factor) ** 2 * np.eye(60)
    taken = np.linalg.solve(system, differences[:, :100] @ residual[:100] / 2)
    np.testing.assert_allclose(few.scores(), taken, rtol=1e-6)
