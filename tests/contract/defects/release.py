"""Defects of privacy that somebody could write in `skdpot.release`."""
# ruff: noqa: E501

import warnings

import numpy as np

from tests.contract.defects.changes import of_a_costly_search
from tests.contract.injection import (
    Injections,
    all_of,
    as_any_object,
    checked_late,
    given,
    half_noise,
    instead,
    returning,
    rewritten,
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


# fmt: off
INJECTIONS: Injections = {
    1: [
        (half_noise("release_moments"), {"moments of classes": "core/release/test_moments.py::test_every_entry_has_the_noise_that_is_charged"}),
        (half_noise("NoisyAccumulator.__init__"), {
            "table of a sketch": "contract/test_noise.py::test_noise_has_the_law_that_is_charged[sketch]",
            "table of a sketch, by audit": "contract/test_claims_by_audit.py::test_no_audit_proves_more_than_the_claim[sketch]"}),
        (instead("SketchPlan.share", share_of_sigma), {"a share of the noise": "distance/test_secure_sum.py::test_those_who_follow_the_protocol_add_the_noise_that_is_charged"}),
        (instead("SecureSum.n_shares", all_parties), {"shares of curious parties counted": "distance/test_secure_sum.py::test_those_who_follow_the_protocol_add_the_noise_that_is_charged"}),
        (rewritten("SecureSum.total", ("sums[-1] != self.n_parties", "False")), {"a party whose share is missing": "distance/test_secure_sum.py::test_a_sum_that_fails_releases_nothing_and_quotes_nothing[missing]"}),
        (rewritten("SecureSum.fit", ("sketch.random_state is not None", "False")), {"parties with equal seeds": "distance/test_secure_sum.py::test_what_does_not_fit_together_is_refused_before_any_charge[seed]"}),
        (half_noise("release_histograms"), {
            "histograms of bounds": "contract/test_noise.py::test_noise_has_the_law_that_is_charged[bounds of features]",
            "histograms of bounds, by audit": "contract/test_claims_by_audit.py::test_no_audit_proves_more_than_the_claim[histogram of bounds]"}),
    ],
    2: [
        (rewritten("_cut_rows", ("_RADIUS * (1 - 1e-09)", "1.5 * _RADIUS")), {"rows of moments": "core/release/test_moments.py::test_no_record_moves_the_moments_by_more_than_the_sensitivity[across the ball]"}),
        (rewritten("_cut_rows", ("bounds.to_ball(rows)", "rows")), {"rows of moments at any length": "core/release/test_moments.py::test_no_record_moves_the_moments_by_more_than_the_sensitivity[far away]"}),
        (rewritten("plan_moments", ("events[1:]", "None")), {"parts of classes that nobody pays for": "core/release/test_moments.py::test_moments_of_classes_and_of_parts_are_both_paid_for[1.0]"}),
        (given("GaussianEvent.__init__", "_moments_event", sensitivity=99.0), {"moments without the last entry": "core/release/test_moments.py::test_every_entry_has_the_noise_that_is_charged"}),
        (skipped("DataBounds._shorten", "mapped"), {"rows to the ball": "sampling/test_row_releases.py::test_rows_outside_the_ball_are_shortened"}),
        (rewritten("DataBounds.to_ball", ("np.clip(mapped, -side, side, out=mapped)", "mapped")), {"rows to the box": "core/release/test_bounds.py::test_rows_land_inside"}),
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
        (rewritten("NoisyAccumulator._check_whole", ("os.getpid() != self._process", "False")), {"a fork": "core/release/test_neighbours.py::test_a_fork_cannot_use_the_noise_of_an_open_sketch"}),
        (rewritten("NoisyAccumulator.add", ("del self._table", "pass")), {"a chunk that was half added": "core/release/test_sketch_use.py::test_an_interrupted_chunk_ends_the_stream_for_good[KeyboardInterrupt]"}),
    ],
    17: [
        (skipped("BoundsPlan.before", "event"), {
            "sketch": "contract/test_noise.py::test_private_bounds_are_paid_for_by_more_noise",
            "sketches of trajectories": "trajectories/test_trajectory_privacy.py::test_epsilon_of_a_sketch_is_that_of_its_noise[private-1]",
            "projected rows": "sampling/test_row_releases.py::test_private_bounds_take_a_tenth"}),
        (returning("BoundsPlan.event", the_first_phase), {"norms after features": "contract/test_draws_are_charged.py::test_every_noise_is_charged_as_often_as_it_is_drawn[flow]", "norms after sizes": "contract/test_plans.py::test_a_plan_costs_what_it_was_given[bounds of few rows]"}),
        (given("GaussianEvent.__init__", "plan_private_bounds", n_steps=1), {"rounds of histograms after the first": "contract/test_plans.py::test_a_plan_costs_what_it_was_given[bounds of features]"}),
    ],
    18: [
        (rewritten("NoisyAccumulator.add", ("* units // plan.n_units", "")), {"rows of a person that weigh one each in a sketch": "contract/test_unit_of_privacy.py::test_all_rows_of_a_person_move_no_sketch_further_than_one_row[sketch]"}),
        (rewritten("SlicedSketch._release", ("int(persons.max()) + 1", "rows.n_rows")), {"a private number of rows of a sketch": "contract/test_unit_of_privacy.py::test_nothing_shows_how_many_rows_there_are[sketch]"}),
        (rewritten("Unit.draw", ("ranks < self.max_rows", "ranks >= 0")), {"all rows of a person counted": "contract/test_unit_of_privacy.py::test_all_rows_of_a_person_move_no_release_further_than_charged[row-known]"}),
        (rewritten("Unit.draw", ("units / UNITS", "np.ones(len(units))")), {"rows of a person that weigh one each": "contract/test_unit_of_privacy.py::test_all_rows_of_a_person_move_no_release_further_than_charged[person-known]"}),
        (rewritten("Unit.draw", ("UNITS % shared", "shared")), {"a unit too much for most rows": "contract/test_unit_of_privacy.py::test_rows_are_drawn_evenly_and_share_what_a_person_weighs[5-person]"}),
        (rewritten("Unit.draw", ("order[starts]", "order[:len(starts)]")), {"several rows of a person for one": "contract/test_unit_of_privacy.py::test_rows_are_drawn_evenly_and_share_what_a_person_weighs[1-person]"}),
        (given("Strategy.sensitivity", group_size=1), {
            "table of a sketch": "core/release/test_sensitivity.py::test_the_worst_neighbours_reach_the_bound_and_do_not_exceed_it[two rows of a person]",
            "table of a sketch, by audit": "contract/test_claims_by_audit.py::test_no_audit_proves_more_than_the_claim[sketch of persons]"}),
        (rewritten("plan_private_bounds", ("group_size * math.sqrt(2 * n_features)", "math.sqrt(2 * n_features)")), {"histograms of bounds": "contract/test_replaced_records.py::test_no_release_moves_further_than_its_sensitivity[bounds of features, three rows of a person]"}),
        (given("planned_bounds", group_size=1), {"bounds of a sketch": "core/release/test_public_labels.py::test_private_bounds_pool_the_rows_of_a_person"}),
    ],
    19: [
        (checked_late("check_arrivals", "SlicedSketch.partial_fit"), {"too many rows in a stream": "core/release/test_sketch_use.py::test_what_cannot_be_fitted_is_refused_before_any_charge[too many rows]"}),
        (checked_late("resolve_device", "SlicedSketch._open"), {"a device that is not there": "core/release/test_sketch_use.py::test_what_cannot_be_fitted_is_refused_before_any_charge[no device]"}),
        (skipped("SecureSum.agree"), {"parties with other plans": "distance/test_secure_sum.py::test_what_does_not_fit_together_is_refused_before_any_charge[epsilon]"}),
    ],
    24: [
        (rewritten("forgotten", ("with withholding():", "if True:")), {"trials in a file": "core/privacy/test_journal.py::test_trials_of_a_search_are_in_no_file"}),
        (returning("check_statement", of_a_costly_search, "SketchRecord._check_statement"), {"sketches that tell more than a trial": "search/test_private_search_winners.py::test_a_statement_of_a_search_that_its_noise_does_not_bear_is_refused"}),
    ],
    25: [
        (rewritten("_release_units", ("np.where(shown, octave_ends, 0.0)", "np.abs(rows.value).max(axis=0)")), {"sizes of features that are true": "contract/test_replay.py::test_a_fit_follows_from_its_releases[sketch, few rows, units]"}),
        (rewritten("release_histograms", ("pass_gate(release)", "counts + 0 * pass_gate(release)")), {"bounds from exact counts": "contract/test_replay.py::test_a_fit_follows_from_its_releases[flow]"}),
        (rewritten("SlicedSketch._open", ("projection_half_widths(self.bounds_, plan.directions)", "np.abs(self.bounds_.to_ball(rows.value[0]) @ plan.directions.T).max(axis=0)")), {"ranges of directions by true projections": "contract/test_replay.py::test_a_fit_follows_from_its_releases[sketch]"}),
        (rewritten("_release_features", ("in tables", "in rows.sum(sizes.count)[0]")), {"true magnitudes": "contract/test_replay.py::test_a_fit_follows_from_its_releases[flow, automatic]"}),
        (rewritten("release_ranges", ("knots = feature.knots(*spans[j])", "knots = feature.knots(*spans[j]); knots[1] += 1e-12 * rows.sum(lambda batch: ((batch > 0).sum(axis=0),))[0][j]")), {"a scale by true counts": "contract/test_replay.py::test_a_fit_follows_from_its_releases[encoder, private scale]"}),
        (rewritten("release_private_bounds", ("norms.end(max(cell, 1))", "norms.end(int(np.flatnonzero(rows.sum(norms.count)[0][0])[-1]))")), {"a radius of true norms": "contract/test_replay.py::test_a_fit_follows_from_its_releases[sketch, norms of many features]"}),
        (given("NoisyAccumulator.add", rows=warned_of), {"a warning of rows that are cut": "contract/test_replay.py::test_a_fit_follows_from_its_releases[sketch, box]"}),
        (rewritten("_release_features", ("shown[j] = counts if seen.size else shown[j]", "shown[j] = replace(counts, table=1.0 * rows.sum(histograms.count)[0][j])")), {"ranges of true counts": "contract/test_replay.py::test_a_fit_follows_from_its_releases[encoder]"}),
    ],
    27: [
        (rewritten("Norms._cells", ("column - center", "column - column.mean()")), {"norms about the mean of a batch": "core/release/test_bounds.py::test_counts_are_sums_over_any_partition[norms]"}),
    ],
    28: [
        (rewritten("counting_device", ("where is not None", "False")), {"products that a device rounds": "core/release/test_neighbours.py::test_a_device_that_rounds_products_is_refused_before_any_charge[torch]"}),
        (rewritten("release_moments", ("some.T @ some", "2 * (some.T @ some)")), {"products counted twice": "core/release/test_moments.py::test_no_record_moves_the_moments_by_more_than_the_sensitivity[across the ball]"}),
        (rewritten("Histograms.count", ("counts += np.bincount(cells.ravel(), minlength=n_cells + 1)", "counts += sum(np.bincount(part.ravel(), minlength=n_cells + 1) for part in (cells, cells // 2))")), {"a row in two cells of a histogram": "contract/test_replaced_records.py::test_no_release_moves_further_than_its_sensitivity[bounds of features]"}),
        (given("_ExactProjections.of", limited=False), {"rows of more energy counted where they are": "core/release/test_strategy.py::test_a_row_of_more_energy_is_counted_in_the_middle[None]"}),
        (rewritten("_largest_change", ("+ dual * limit", "")), {"the price of a limit forgotten": "core/release/test_strategy.py::test_no_bins_of_limited_energy_move_the_statistic_further"}),
        (rewritten("Strategy._least_squares", ("centres - 0.5", "centres")), {"records taken to be in the middle of their bins": "core/release/test_strategy.py::test_no_bins_of_limited_energy_move_the_statistic_further"}),
    ],
    30: [
        (returning("SketchCounter.__call__", with_noise_of_its_own), {"noise for each batch": "core/sources/test_same_release.py::test_every_form_of_the_same_rows_gives_the_same_release[sketch, classes-one_row_each]"}),
        (rewritten("SlicedSketch._release", ("self._accumulator.add(rows, parts)", "self._accumulator.add(rows, parts) or vars(self).update(_kept=rows.sum(self._accumulator._counter))")), {"counts kept on the estimator": "contract/test_replay.py::test_a_fit_of_batches_follows_from_its_releases[sketch]"}),
    ],
}
# fmt: on
