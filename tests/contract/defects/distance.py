"""Defects of privacy that somebody could write in `skdpot.distance`."""
# ruff: noqa: E501

from skdpot.privacy.accounting import compose
from tests.contract.injection import Injections, returning


def the_most_private_one(event, events):
    return min(events, key=lambda event: compose(event).mu_without_sampling)


def for_a_mapping_only(budget, parties):
    return None if isinstance(parties, list | tuple) else budget


def rows_instead_of_persons(n_records, rows):
    return len(rows)


# fmt: off
INJECTIONS: Injections = {
    17: [
        (returning("_least_private", the_most_private_one), {"the most private of several parties": "distance/test_protocols.py::test_a_shared_budget_pays_for_the_least_private_party[1]"}),
        (returning("_shared_budget", for_a_mapping_only), {"parties in a list": "distance/test_wasserstein_distance.py::test_parties_with_different_people_share_one_charge[list]"}),
    ],
    25: [
        (returning("_n_records", rows_instead_of_persons), {"directions by the rows of persons": "distance/test_wasserstein_distance.py::test_the_number_of_directions_depends_on_persons_and_not_on_their_rows"}),
    ],
}
# fmt: on
