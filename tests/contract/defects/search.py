"""Defects of privacy that somebody could write in `skdpot.search`."""
# ruff: noqa: E501

import numpy as np

from tests.contract.injection import (
    Injections,
    instead,
    returning,
    skipped,
)


def rank_of_a_lower_name(numbers):
    return numbers.argsort()


def seed_of_31_bits(secret):
    return secret.random_bits(31)


def by_numbers_of_rows(folds, persons):
    return folds[np.bincount(persons).argsort().argsort()]


def the_exact_score(score, total, task):
    return total / task.plan.n_scored


# fmt: off
INJECTIONS: Injections = {
    18: [
        (instead("_ranks", rank_of_a_lower_name), {"persons that move with the names of others": "core/privacy/test_check_search.py::test_persons_move_alone"}),
        (returning("_folds_of_persons", by_numbers_of_rows), {"persons that move with the rows of others": "core/privacy/test_check_search.py::test_persons_move_alone"}),
    ],
    19: [
        (skipped("try_out", within="PrivateSearchCV.fit"), {"a score that fails on any rows": "contract/test_strangers.py::test_a_stranger_fails_before_the_charge_or_not_at_all[PrivateSearchCV-scoring-raises]"}),
    ],
    24: [
        (instead("_candidate_seed", seed_of_31_bits), {"a short seed for a candidate": "search/test_private_search.py::test_parameters_do_not_show_the_index_of_their_trial"}),
        (skipped("_uncounted", "distributions"), {"laws that count their draws": "search/test_private_search.py::test_a_candidate_has_one_law_at_every_index[counting]"}),
    ],
    25: [
        (returning("noisy_score", the_exact_score), {"trials compared by exact scores": "contract/test_replay.py::test_a_fit_follows_from_its_releases[search]"}),
    ],
}
# fmt: on
