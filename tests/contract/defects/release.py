"""Defects of privacy that somebody could write in `skdpot.release`."""
# ruff: noqa: E501

import os
import warnings
from contextlib import nullcontext
from dataclasses import replace

import numpy as np
from sklearn.base import clone

from skdpot._utils.devices import resolve_device
from skdpot.release.contributions import UNITS
from skdpot.release.value_histogram import Intervals, Magnitudes, Norms
from skdpot.sources import Rows
from skdpot.sources.rows import HeldRows
from tests.contract.defects.changes import of_a_costly_search
from tests.contract.injection import (
    Injections,
    all_of,
    as_any_object,
    checked_late,
    given,
    half_noise,
    instead,
    reading,
    replaced,
    returning,
    skipped,
)


def the_first_phase(event):
    return event.phases[0]


def warned_of(rows):
    if np.abs(rows.value[0]).max() > 100.0:
        warnings.warn("rows are cut", stacklevel=2)
    return rows


def with_noise_of_its_own(tables):
    return tuple(table + np.random.default_rng().integers(-1, 2, table.shape) for table in tables)


def share_of_sigma(self):
    return self.sigma / self.n_shares


def all_parties(self):
    return self.n_parties


def only_of_classes(composed):
    return lambda events: events[0]


def as_if_of_all(self):
    def add(message, largest):
        total = np.array(self.add(message, largest))
        total[-1] = self.n_parties
        return total

    return replace(self, add=add)


def without_a_seed(sketch):
    return clone(sketch).set_params(random_state=None)


def half_as_long_again(units):
    units[:, :-1] = np.trunc(1.5 * units[:, :-1])
    return units


def in_a_large_box(self):
    return replace(self, radius=1e6 * self.radius) if self.box else self


def as_if_opened_here(self):
    self._process = os.getpid()
    return self


def keeping_what_was_added(add):
    def added(self, *args, **options):
        table = self._table
        try:
            return add(self, *args, **options)
        except BaseException:
            self._table = table
            raise

    return added


def in_full(parts, self):
    return parts and [(some, self._plan.n_units) for some, _ in parts]


def number_of_rows(number, rows):
    return rows.n_rows


def with_all_rows(self):
    return replace(self, max_rows=10**6)


def with_rows_of_one_each(self):
    return replace(self, weighting="row")


def with_a_unit_more(drawn):
    return replace(drawn, weights=drawn.weights + 1.0 / UNITS)


def with_the_first_rows(drawn, persons):
    return replace(drawn, one_each=np.argsort(persons, kind="stable")[: len(drawn.one_each)])


def where_nothing_is_withheld():
    return nullcontext()


def true_counts(table, histograms, rows):
    batches = rows if isinstance(rows, Rows) else HeldRows(rows, len(rows))
    return 1.0 * batches.sum(histograms.count)[0]


def true_counts_of_magnitudes(table, histograms, rows):
    return true_counts(table, histograms, rows) if type(histograms) is Magnitudes else table


def true_counts_of_norms(table, histograms, rows):
    return true_counts(table, histograms, rows) if type(histograms) is Norms else table


def true_counts_of_intervals(table, histograms, rows):
    return true_counts(table, histograms, rows) if type(histograms) is Intervals else table


def with_ranges_of_true_projections(parts, self, rows):
    projected = self.bounds_.to_ball(rows.value[0]) @ self.directions_.T
    widths = np.abs(projected).max(axis=0)
    self.half_widths_ = self._accumulator._half_widths = widths
    self._accumulator._counter = replace(self._accumulator._counter, half_widths=widths)
    return parts


def by_true_counts(ranges, rows):
    (positive,) = rows.sum(lambda batch: ((batch > 0).sum(axis=0),))
    return tuple(
        known if known.knots is None else replace(known, knots=known.knots + 1e-12 * count)
        for known, count in zip(ranges, positive, strict=True)
    )


def about_the_mean(self, rows):
    return replace(self, center=rows.mean(axis=0))


def also_in_another_cell(tables):
    (table,) = tables
    halved = np.arange(table.size) // 2
    return (
        table + np.bincount(halved, table.ravel(), table.size).astype(int).reshape(table.shape),
    )


def twice_as_large(matrices):
    return 2 * matrices


def of_a_bound_without_its_price(minimize):
    def minimized(bound, *, bounds, **options):
        limit = bound(0.0) / bounds[1]
        return minimize(lambda dual: bound(dual) - dual * limit, bounds=bounds, **options)

    return minimized


def of_the_centres(squares, self):
    return (np.sqrt(squares) + 1.0 / self.n_bins) ** 2


def keeping_counts(parts, self, rows):
    self._kept = rows.sum(self._accumulator._counter)
    return parts


def without_a_check(device):
    return resolve_device(device)


# fmt: off
INJECTIONS: Injections = {
    1: [
        (half_noise("release_moments"), {"moments of classes": "core/release/test_moments.py::test_every_entry_has_the_noise_that_is_charged"}),
        (half_noise("NoisyAccumulator.__init__"), {
            "table of a sketch": "contract/test_noise.py::test_noise_has_the_law_that_is_charged[sketch]",
            "table of a sketch, by audit": "contract/test_claims_by_audit.py::test_no_audit_proves_more_than_the_claim[sketch]"}),
        (instead("SketchPlan.share", share_of_sigma), {"a share of the noise": "distance/test_secure_sum.py::test_those_who_follow_the_protocol_add_the_noise_that_is_charged"}),
        (instead("SecureSum.n_shares", all_parties), {"shares of curious parties counted": "distance/test_secure_sum.py::test_those_who_follow_the_protocol_add_the_noise_that_is_charged"}),
        (given("SecureSum.total", self=as_if_of_all), {"a party whose share is missing": "distance/test_secure_sum.py::test_a_sum_that_fails_releases_nothing_and_quotes_nothing[missing]"}),
        (given("SecureSum.fit", sketch=without_a_seed), {"parties with equal seeds": "distance/test_secure_sum.py::test_what_does_not_fit_together_is_refused_before_any_charge[seed]"}),
        (half_noise("release_histograms"), {
            "histograms of bounds": "contract/test_noise.py::test_noise_has_the_law_that_is_charged[bounds of features]",
            "histograms of bounds, by audit": "contract/test_claims_by_audit.py::test_no_audit_proves_more_than_the_claim[histogram of bounds]"}),
    ],
    2: [
        (returning("_cut_rows", half_as_long_again), {"rows of moments": "core/release/test_moments.py::test_no_record_moves_the_moments_by_more_than_the_sensitivity[across the ball]"}),
        (skipped("DataBounds.to_ball", "X", "_cut_rows"), {"rows of moments at any length": "core/release/test_moments.py::test_no_record_moves_the_moments_by_more_than_the_sensitivity[far away]"}),
        (reading("plan_moments", ComposedEvent=only_of_classes), {"parts of classes that nobody pays for": "core/release/test_moments.py::test_moments_of_classes_and_of_parts_are_both_paid_for[1.0]"}),
        (given("GaussianEvent.__init__", "_moments_event", sensitivity=99.0), {"moments without the last entry": "core/release/test_moments.py::test_every_entry_has_the_noise_that_is_charged"}),
        (skipped("DataBounds._shorten", "mapped"), {"rows to the ball": "sampling/test_row_releases.py::test_rows_outside_the_ball_are_shortened"}),
        (given("DataBounds.to_ball", self=in_a_large_box), {"rows to the box": "core/release/test_bounds.py::test_rows_land_inside"}),
    ],
    5: [
        (given("Strategy.sensitivity", "plan_sketch", conditional=False), {
            "sketch with classes": "core/release/test_sensitivity.py::test_a_change_of_class_alone_needs_the_larger_sensitivity",
            "sketch with classes, by audit": "contract/test_claims_by_audit.py::test_no_audit_proves_more_than_the_claim[sketch with classes]"}),
    ],
    15: [
        (skipped("SlicedSketch._check_readable", within="SlicedSketch.__getstate__"), {"state of the sketch": "core/release/test_sketch_use.py::test_an_open_sketch_cannot_be_read_or_copied[state]"}),
        (all_of(skipped("SlicedSketch._check_readable", within="SlicedSketch.__getstate__"), as_any_object("NoisyAccumulator.__reduce_ex__"), as_any_object("NoisyAccumulator.__getstate__")), {"pickles of the sketch": "core/release/test_sketch_use.py::test_an_open_sketch_cannot_be_read_or_copied[pickle]"}),
        (skipped("NoisyAccumulator.__copy__", "self"), {"copies of the accumulator": "core/release/test_sketch_use.py::test_an_open_sketch_cannot_be_read_or_copied[copy of the accumulator]"}),
        (given("NoisyAccumulator._check_whole", self=as_if_opened_here), {"a fork": "core/release/test_neighbours.py::test_a_fork_cannot_use_the_noise_of_an_open_sketch"}),
        (replaced("NoisyAccumulator.add", keeping_what_was_added, "keeps what was added before an error"), {"a chunk that was half added": "core/release/test_sketch_use.py::test_an_interrupted_chunk_ends_the_stream_for_good[KeyboardInterrupt]"}),
    ],
    17: [
        (skipped("BoundsPlan.before", "event"), {
            "sketch": "contract/test_noise.py::test_private_bounds_are_paid_for_by_more_noise",
            "sketches of trajectories": "trajectories/test_trajectory_privacy.py::test_epsilon_of_a_sketch_is_that_of_its_noise[private-1]",
            "projected rows": "sampling/test_row_releases.py::test_private_bounds_take_a_tenth"}),
        (returning("BoundsPlan.event", the_first_phase), {"norms after features": "contract/test_draws_are_charged.py::test_every_noise_is_charged_as_often_as_it_is_drawn[flow]"}),
        (given("GaussianEvent.__init__", "plan_private_bounds", n_steps=1), {"rounds of histograms after the first": "contract/test_plans.py::test_a_plan_costs_what_it_was_given[bounds of features]"}),
    ],
    18: [
        (given("NoisyAccumulator.add", parts=in_full), {"rows of a person that weigh one each in a sketch": "contract/test_unit_of_privacy.py::test_all_rows_of_a_person_move_no_sketch_further_than_one_row[sketch]"}),
        (returning("count_records", number_of_rows), {
            "a private number of rows of a sketch": "contract/test_unit_of_privacy.py::test_nothing_shows_how_many_rows_there_are[sketch]",
            "a private number of rows": "contract/test_replay.py::test_a_fit_follows_from_its_releases[synthesizer, persons]"}),
        (given("Unit.draw", self=with_all_rows), {"all rows of a person counted": "contract/test_unit_of_privacy.py::test_all_rows_of_a_person_move_no_release_further_than_charged[row-known]"}),
        (given("Unit.draw", self=with_rows_of_one_each), {"rows of a person that weigh one each": "contract/test_unit_of_privacy.py::test_all_rows_of_a_person_move_no_release_further_than_charged[person-known]"}),
        (returning("Unit.draw", with_a_unit_more), {"a unit too much for most rows": "contract/test_unit_of_privacy.py::test_rows_are_drawn_evenly_and_share_what_a_person_weighs[5-person]"}),
        (returning("Unit.draw", with_the_first_rows), {"several rows of a person for one": "contract/test_unit_of_privacy.py::test_rows_are_drawn_evenly_and_share_what_a_person_weighs[1-person]"}),
        (given("Strategy.sensitivity", group_size=1), {
            "table of a sketch": "core/release/test_sensitivity.py::test_the_worst_neighbours_reach_the_bound_and_do_not_exceed_it[two rows of a person]",
            "table of a sketch, by audit": "contract/test_claims_by_audit.py::test_no_audit_proves_more_than_the_claim[sketch of persons]"}),
        (given("plan_private_bounds", group_size=1), {"histograms of bounds": "contract/test_replaced_records.py::test_no_release_moves_further_than_its_sensitivity[bounds of features, three rows of a person]"}),
        (given("planned_bounds", group_size=1), {"bounds of a sketch": "core/release/test_public_labels.py::test_private_bounds_pool_the_rows_of_a_person"}),
    ],
    19: [
        (checked_late("check_arrivals", "SlicedSketch.partial_fit"), {"too many rows in a stream": "core/release/test_sketch_use.py::test_what_cannot_be_fitted_is_refused_before_any_charge[too many rows]"}),
        (checked_late("resolve_device", "SlicedSketch._open"), {"a device that is not there": "core/release/test_sketch_use.py::test_what_cannot_be_fitted_is_refused_before_any_charge[no device]"}),
        (skipped("SecureSum.agree"), {"parties with other plans": "distance/test_secure_sum.py::test_what_does_not_fit_together_is_refused_before_any_charge[epsilon]"}),
    ],
    24: [
        (instead("withholding", where_nothing_is_withheld, "forgotten"), {"trials in a file": "core/privacy/test_journal.py::test_trials_of_a_search_are_in_no_file"}),
        (returning("check_statement", of_a_costly_search, "SketchRecord._check_statement"), {"sketches that tell more than a trial": "search/test_private_search_winners.py::test_a_statement_of_a_search_that_its_noise_does_not_bear_is_refused"}),
    ],
    25: [
        (returning("release_histograms", true_counts, "_release_units"), {"sizes of features that are true": "contract/test_replay.py::test_a_fit_follows_from_its_releases[sketch, few rows, units]"}),
        (returning("release_histograms", true_counts), {"bounds from exact counts": "contract/test_replay.py::test_a_fit_follows_from_its_releases[flow]"}),
        (returning("SlicedSketch._open", with_ranges_of_true_projections), {"ranges of directions by true projections": "contract/test_replay.py::test_a_fit_follows_from_its_releases[sketch]"}),
        (returning("release_histograms", true_counts_of_magnitudes, "_release_features"), {"true magnitudes": "contract/test_replay.py::test_a_fit_follows_from_its_releases[flow, automatic]"}),
        (returning("release_ranges", by_true_counts), {"a scale by true counts": "contract/test_replay.py::test_a_fit_follows_from_its_releases[encoder, private scale]"}),
        (returning("release_histograms", true_counts_of_norms, "release_private_bounds"), {"a radius of true norms": "contract/test_replay.py::test_a_fit_follows_from_its_releases[sketch, norms of many features]"}),
        (given("NoisyAccumulator.add", rows=warned_of), {"a warning of rows that are cut": "contract/test_replay.py::test_a_fit_follows_from_its_releases[sketch, box]"}),
        (returning("release_histograms", true_counts_of_intervals, "_release_features"), {"ranges of true counts": "contract/test_replay.py::test_a_fit_follows_from_its_releases[encoder]"}),
    ],
    27: [
        (given("Norms._cells", self=about_the_mean), {"norms about the mean of a batch": "core/release/test_bounds.py::test_counts_are_sums_over_any_partition[norms]"}),
    ],
    28: [
        (instead("counting_device", without_a_check), {"products that a device rounds": "core/release/test_neighbours.py::test_a_device_that_rounds_products_is_refused_before_any_charge[torch]"}),
        (given("_triangle", "release_moments", matrices=twice_as_large), {"products counted twice": "core/release/test_moments.py::test_no_record_moves_the_moments_by_more_than_the_sensitivity[across the ball]"}),
        (returning("Histograms.count", also_in_another_cell), {"a row in two cells of a histogram": "contract/test_replaced_records.py::test_no_release_moves_further_than_its_sensitivity[bounds of features]"}),
        (given("_ExactProjections.of", limited=False), {"rows of more energy counted where they are": "core/release/test_strategy.py::test_a_row_of_more_energy_is_counted_in_the_middle[None]"}),
        (reading("_largest_change", minimize_scalar=of_a_bound_without_its_price), {"the price of a limit forgotten": "core/release/test_strategy.py::test_no_bins_of_limited_energy_move_the_statistic_further"}),
        (returning("Strategy._least_squares", of_the_centres), {"records taken to be in the middle of their bins": "core/release/test_strategy.py::test_no_bins_of_limited_energy_move_the_statistic_further"}),
    ],
    30: [
        (returning("SketchCounter.__call__", with_noise_of_its_own), {"noise for each batch": "core/sources/test_same_release.py::test_every_form_of_the_same_rows_gives_the_same_release[sketch, classes-one_row_each]"}),
        (returning("SlicedSketch._open", keeping_counts), {"counts kept on the estimator": "contract/test_replay.py::test_a_fit_of_batches_follows_from_its_releases[sketch]"}),
    ],
}
# fmt: on
