"""Defects of privacy that somebody could write in `skdpot.distance`."""
# ruff: noqa: E501

from tests.contract.injection import (
    Injections,
    rewritten,
)

# fmt: off
INJECTIONS: Injections = {
    17: [
        (rewritten("_charge_once", ("max(events", "min(events")), {"the most private of several parties": "distance/test_protocols.py::test_a_shared_budget_pays_for_the_least_private_party[1]"}),
        (rewritten("Sliced.matrix", ("isinstance(parties[0], Party)", "True")), {"parties in a list": "distance/test_wasserstein_distance.py::test_parties_with_different_people_share_one_charge[list]"}),
    ],
    25: [
        (rewritten("Sliced.release", ("elif context.groups is None:", "elif True:")), {"directions by the rows of persons": "distance/test_wasserstein_distance.py::test_the_number_of_directions_depends_on_persons_and_not_on_their_rows"}),
    ],
}
# fmt: on
