"""Defects of privacy that somebody could write in `skdpot.audit`."""
# ruff: noqa: E501

import operator

from tests.contract.injection import (
    Injections,
    given,
    half,
    reading,
    returning,
)


def the_records_of_the_coins(records, self, heads):
    return self.pairs.choose(heads)


def as_if_taken(records):
    return records.clamp(min=0)


# fmt: off
INJECTIONS: Injections = {
    8: [
        (reading("stated_epsilon", ROUNDING=0.0), {"no room for other machines in _epsilon": "core/privacy/test_spent.py::test_a_statement_bounds_what_any_machine_computes[1e-05-event1]"}),
    ],
    21: [
        (given("guessing_p_value", delta=0.0), {"delta of the claim": "audit/test_guessing.py::test_golden_ceiling"}),
        (given("_least_wrong", mu=half), {"a trade-off of half of the noise": "audit/test_guessing.py::test_gaussian_bound_is_attained[0.72]"}),
        (returning("PrivacyLoss.is_sampled", False, "claimed"), {"the bound of Gaussian noise for secret batches": "audit/test_one_run.py::test_the_stronger_bound_is_for_gaussian_noise_that_all_records_see"}),
        (returning("_explained", operator.neg, "EvidenceSum.add"), {"coins in a residual": "audit/test_noise.py::test_p_values_of_correct_noise_are_uniform"}),
        (returning("_joined_by_kind", []), {"small releases": "audit/test_noise.py::test_small_releases_are_tested_together"}),
        (returning("AuditTask._other_records", the_records_of_the_coins), {"outputs beside the releases": "audit/test_missing_noise.py::test_an_output_beside_the_releases_is_refuted"}),
    ],
    22: [
        (returning("leak_of_steps", 0.0, "_epsilon"), {"tails that epsilon forgets": "core/privacy/test_selection.py::test_the_account_is_a_gaussian_unless_something_leaks"}),
    ],
    27: [
        (given("_add", records=as_if_taken), {"a vacant place adds something": "contract/test_places.py::test_vacant_places_add_exactly_nothing"}),
    ],
}
# fmt: on
