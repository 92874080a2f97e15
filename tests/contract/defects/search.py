"""Defects of privacy that somebody could write in `skdpot.search`."""
# ruff: noqa: E501

from tests.contract.injection import (
    Injections,
    rewritten,
    skipped,
)

# fmt: off
INJECTIONS: Injections = {
    18: [
        (rewritten("PersonKFold._iter_test_indices", (".argsort().argsort()", ".argsort()")), {"persons that move with the names of others": "core/privacy/test_check_search.py::test_persons_move_alone"}),
        (rewritten("PersonKFold._iter_test_indices", ("folds[persons] == fold", "folds[np.bincount(persons).argsort().argsort()][persons] == fold")), {"persons that move with the rows of others": "core/privacy/test_check_search.py::test_persons_move_alone"}),
    ],
    19: [
        (skipped("try_out", within="PrivateSearchCV.fit"), {"a score that fails on any rows": "contract/test_strangers.py::test_a_stranger_fails_before_the_charge_or_not_at_all[PrivateSearchCV-scoring-raises]"}),
    ],
    24: [
        (rewritten("_draw_candidate", ("secret.random_bits(128)", "secret.random_bits(31)")), {"a short seed for a candidate": "search/test_private_search.py::test_parameters_do_not_show_the_index_of_their_trial"}),
        (rewritten("_draw_candidate", ("deepcopy(distributions)", "distributions")), {"laws that count their draws": "search/test_private_search.py::test_a_candidate_has_one_law_at_every_index[counting]"}),
    ],
}
# fmt: on
