"""Defects of privacy that somebody could write, each with the test that catches it.

``python -m tests.contract.mutants --csv doc/mutants.csv`` injects them one by one and writes what
the tests say; `test_mutants` does the same in every run of the tests.
"""
# ruff: noqa: E501

import argparse
import csv
import math
import warnings
from dataclasses import dataclass, replace

import numpy as np

from skdpot.privacy.events import Step
from skdpot.privacy.sampling import PoissonClippedSumStep
from skdpot.tables.contingency import exact_counts
from tests.contract.injection import (
    LARGE,
    Injection,
    Outcome,
    all_of,
    as_any_object,
    charged_late,
    checked_late,
    given,
    half,
    half_noise,
    instead,
    returning,
    rewritten,
    run_tests,
    skipped,
    twice,
)

__all__ = ["FILES", "MUTANTS", "Mutant", "results"]

DEFECTS = {
    1: "half of the noise",
    2: "no clipping",
    3: "noise drawn again and charged once",
    4: "charged after the release",
    5: "a change of class not counted",
    6: "particles clipped one by one",
    7: "sampling rate understated",
    8: "delta ignored",
    9: "an unstable sort",
    10: "sizes of the data in the place of batch sizes",
    11: "batches cut from one permutation",
    12: "released in the order of the data",
    13: "BatchNorm let in",
    14: "truncated blocks of directions taken for whole ones",
    15: "two snapshots of an open sketch",
    16: "the factor of the lattice forgotten",
    17: "private bounds charged nothing",
    18: "several rows of a person counted as one",
    19: "a refused call has charged",
    20: "a normal approximation as the account",
    21: "what an audit forgives",
    22: "categories told that few have",
    23: "more of a table than was counted",
    24: "a search that tells of its trials",
    25: "a private number beside the gate of releases",
    26: "a step of a pipeline that learns without noise",
    27: "one record changes how others are read",
    28: "a sensitivity that some records exceed",
    29: "planned fits that are not paid for",
    30: "batches counted wrongly, or told of",
}


@dataclass(frozen=True)
class Mutant:
    """One defect.

    Parameters
    ----------
    defect : int
        Which of `DEFECTS` it is.
    name : str
        Where that happens.
    inject : callable
        Makes the package behave so.
    caught_by : str
        The test that must fail, from ``tests/`` on.
    """

    defect: int
    name: str
    inject: Injection
    caught_by: str

    def __str__(self) -> str:
        return f"{self.defect}: {DEFECTS[self.defect]}, {self.name}"


# --- what defects make of arguments and results: the first one is given, others are of the call ---


def the_same_generator(self):
    return np.random.default_rng(7)


def one_more(threshold):
    return threshold + 1


def without_infinite_losses(losses):
    return replace(losses, infinity_mass=0.0)


def without_a_cap_of_leaks(terms):
    return replace(terms, leak_cap=math.inf)


def sorted_as_numpy_does(points, directions):
    projected = directions.astype(np.float64) @ points.T.astype(np.float64)
    order = np.argsort(projected, axis=1)
    return np.take_along_axis(projected, order, axis=1), order


def with_a_batch_of_all(plan):
    return replace(plan, batch_sizes=(plan.n_samples,))


def compared_in_one_batch(loss, cells):
    return replace(loss, penalty=replace(loss.penalty, batch_sizes=cells.sizes))


def cut_from_one_permutation(n, size, n_steps, stream):
    order, turns = stream.generator().permutation(n), n // size
    return (order[k % turns * size :][:size] for k in range(n_steps))


def as_many_places_as_records(drawn, n_places, stream):
    return drawn


def with_sorted_columns(rows):
    return np.sort(rows, axis=0)


def mu_off_the_lattice(self):
    return self.sensitivity / self.sigma


def plus_exact_values(total, values):
    return total + values


def charged_for_its_last_phase(plan):
    return replace(plan, event=plan.event.phases[-1])


def the_first_phase(event):
    return event.phases[0]


def columns_as_they_are(self, table):
    return {column.name: table.series(column.name) for column in self}


def columns_of_the_model(self, values):
    return {name: values[name] for name in self.model.names}


def nearly_normal_steps(steps, self):
    for _, count in steps:
        yield Step(self.rate * math.sqrt(math.expm1(self.mu**2))), count


def steps_on_poisson_samples(steps, self):
    for _, count in steps:
        yield PoissonClippedSumStep(self.mu, self.rate), count


def of_one_column(event):
    return replace(event, n_columns=1)


def with_true_counts(release, rows, marginals):
    return replace(release, value=exact_counts(rows, marginals))


def with_more_for_pairs(shares):
    return shares | {"pairs": 0.2 + shares["pairs"]}


def first_alone(marginals):
    return marginals[:1]


def for_one_count(sigmas):
    return sigmas / math.sqrt(2.0)


def true_counts(predictions, rows, marginals):
    return list(exact_counts(rows, marginals))


def true_misfits(noisy, rows, marginals, predictions):
    pairs = zip(exact_counts(rows, marginals), predictions, strict=True)
    return np.array([np.abs(counts - p).sum() for counts, p in pairs])


def of_a_costly_search(checked):
    events, charged = checked
    return events, charged and math.inf


def with_all_caps(reserved, target):
    return reserved[0], (target.mu_squared_units, target.leak_units)


def mean_norm(radius, rows):
    return float(np.linalg.norm(np.concatenate(rows), axis=-1).mean())


def moved_by_true_means(start, rows):
    return start + np.stack([of_time.mean(axis=0) for of_time in rows])[:, None]


def times_the_spread_of_rows(smoothing, rows):
    return smoothing * rows[0].std()


def true_count(count, labels):
    return float(labels.sum())


def by_the_norms_of_rows(step, rows):
    def divided(network, number):
        step(network, number)
        for weights in network.parameters():
            weights.grad /= rows.norm(dim=1).sum()

    return divided


def times_the_largest_value(releases, rows):
    for release in releases:
        yield replace(release, value=min(np.abs(rows).max(), 100.0) * release.value)


def warned_of(rows):
    if np.abs(rows.value[0]).max() > 100.0:
        warnings.warn("rows are cut", stacklevel=2)
    return rows


def the_exact_score(score, total, task):
    return total / task.plan.n_scored


def with_noises_exchanged(plan):
    return replace(plan, noises=plan.noises[::-1])


def without_empty_lines(reader):
    return filter(None, reader)


def with_noise_of_its_own(tables):
    return tuple(table + np.random.default_rng().integers(-1, 2, table.shape) for table in tables)


def since_the_earliest(unit):
    return unit - np.nanmin(unit)


_ONE_STEP = all_of(
    given("GaussianEvent.__init__", "plan_rows", n_steps=1),
    given("SampledGaussianEvent.__init__", "plan_rows", n_steps=1),
)

# Of each defect: what makes the package behave so, and where that happens with the test that must
# fail. What happens inside a function is another expression there (`rewritten`). A mutant has a line
# of its own, so that the name of its test is found by a search.
# fmt: off
_INJECTIONS: dict[int, list[tuple[Injection, dict[str, str]]]] = {
    1: [
        (half_noise("release_moments"), {"moments of classes": "core/release/test_moments.py::test_every_entry_has_the_noise_that_is_charged"}),
        (half_noise("ScorePlan._standardised"), {"means and spreads of features": "fair/test_scores.py::test_every_number_has_the_noise_that_is_charged[logistic]"}),
        (half_noise("release_score_tables"), {"counts of scores": "fair/test_bayes_rule.py::test_numbers_have_the_noise_that_is_charged"}),
        (half_noise("NoisyAccumulator.__init__"), {
            "table of a sketch": "contract/test_noise.py::test_noise_has_the_law_that_is_charged[sketch]",
            "table of a sketch, by audit": "contract/test_claims_by_audit.py::test_no_audit_proves_more_than_the_claim[sketch]"}),
        (rewritten("SketchPlan.share", ("math.sqrt(self.n_shares)", "self.n_shares")), {"a share of the noise": "distance/test_secure_sum.py::test_those_who_follow_the_protocol_add_the_noise_that_is_charged"}),
        (rewritten("SecureSum.n_shares", (" - self.n_tolerated", "")), {"shares of curious parties counted": "distance/test_secure_sum.py::test_those_who_follow_the_protocol_add_the_noise_that_is_charged"}),
        (rewritten("SecureSum.total", ("found[-1] != self.n_parties", "False")), {"a party whose share is missing": "distance/test_secure_sum.py::test_a_sum_that_fails_releases_nothing_and_quotes_nothing[missing]"}),
        (rewritten("SecureSum.fit", ("sketch.random_state is not None", "False")), {"parties with equal seeds": "distance/test_secure_sum.py::test_what_does_not_fit_together_is_refused_before_any_charge[seed]"}),
        (rewritten("check_shares", ("n_shares > 1 and", "False and")), {"shares on a coarse lattice": "distance/test_secure_sum.py::test_shares_are_refused_that_no_proof_covers"}),
        (half_noise("noisy_batches"), {
            "projected rows, lattice": "contract/test_noise.py::test_noise_has_the_law_that_is_charged[rows]",
            "projected rows, float": "contract/test_noise.py::test_noise_has_the_law_that_is_charged[rows, float]",
            "projected rows, lattice, by audit": "contract/test_claims_by_audit.py::test_no_audit_proves_more_than_the_claim[projected rows]"}),
        (half_noise("noisy_gradient_steps"), {"gradients of a generator": "core/nets/test_steps.py::test_a_step_is_the_noisy_sum_of_its_batch_over_the_public_batch_size[generator]"}),
        (half_noise("private_steps"), {
            "sums of an autoencoder": "core/nets/test_steps.py::test_a_step_is_the_noisy_sum_of_its_batch_over_the_public_batch_size[autoencoder]",
            "sums of an autoencoder, by audit": "contract/test_claims_by_audit.py::test_no_audit_proves_more_than_the_claim[sums of an autoencoder]"}),
        (half_noise("ranked_steps"), {"fair sums by ranks": "core/nets/test_steps.py::test_a_step_is_the_noisy_sum_of_its_batch_over_the_public_batch_size[ranks]"}),
        (half_noise("tabled_steps"), {
            "fair sums by tables": "core/nets/test_steps.py::test_a_step_is_the_noisy_sum_of_its_batch_over_the_public_batch_size[tables]",
            "fair sums by tables, by audit": "contract/test_claims_by_audit.py::test_no_audit_proves_more_than_the_claim[fair sums]"}),
        (half_noise("PrivateWassersteinGradient._steps"), {"gradients of the tool": "core/nets/test_wasserstein_gradient.py::test_a_gradient_has_the_noise_of_its_event[X]"}),
        (half_noise("release_gradient"), {"every sum of a network": "core/nets/test_steps.py::test_a_step_is_the_noisy_sum_of_its_batch_over_the_public_batch_size[autoencoder, prior]"}),
        (half_noise("noisy_counts"), {
            "fair tables": "contract/test_noise.py::test_noise_has_the_law_that_is_charged[outputs]",
            "fair tables, by audit": "contract/test_claims_by_audit.py::test_no_audit_proves_more_than_the_claim[fair table]"}),
        (half_noise("mean_field_langevin"), {
            "mean-field Langevin": "contract/test_noise.py::test_noise_has_the_law_that_is_charged[mean-field Langevin]",
            "mean-field Langevin, by audit": "contract/test_claims_by_audit.py::test_no_audit_proves_more_than_the_claim[mean-field Langevin]"}),
        (half_noise("_released_sums"), {
            "warm start by means": "contract/test_noise.py::test_noise_has_the_law_that_is_charged[means]",
            "warm start by clusters": "contract/test_noise.py::test_noise_has_the_law_that_is_charged[clusters]",
            "warm start by means, by audit": "contract/test_claims_by_audit.py::test_no_audit_proves_more_than_the_claim[mean of a warm start]"}),
        (half_noise("release_histograms"), {
            "histograms of bounds": "contract/test_noise.py::test_noise_has_the_law_that_is_charged[bounds of features]",
            "histograms of bounds, by audit": "contract/test_claims_by_audit.py::test_no_audit_proves_more_than_the_claim[histogram of bounds]"}),
        (half_noise("select_categories"), {
            "counts of categories": "contract/test_noise.py::test_noise_has_the_law_that_is_charged[categories of a column]",
            "counts of categories, by audit": "contract/test_claims_by_audit.py::test_no_audit_proves_more_than_the_claim[counts of categories]"}),
        (half_noise("release_marginals"), {
            "counts of a synthesizer": "tables/test_marginal_release.py::test_noise_of_marginals_has_the_stated_standard_deviation[40.0]",
            "counts of a synthesizer, by audit": "contract/test_claims_by_audit.py::test_no_audit_proves_more_than_the_claim[counts of a synthesizer]"}),
        (half_noise("release_misfits"), {
            "misfits of a synthesizer": "tables/test_marginal_release.py::test_noise_of_misfits_has_the_stated_standard_deviation",
            "misfits of a synthesizer, by audit": "contract/test_claims_by_audit.py::test_no_audit_proves_more_than_the_claim[misfits of a synthesizer]"}),
        (given("discrete_gaussian", s=half), {"the sampler of lattice noise": "core/privacy/test_noise.py::test_a_million_draws_have_the_exact_law_and_are_independent[10.0]"}),
        (given("gaussian_noise", sigma=half), {"the sampler of float noise": "core/privacy/test_noise.py::test_float_noise"}),
        (given("calibrate_lattice", "plan_tables", mu=twice), {"noise of one release for several": "contract/test_plans.py::test_a_plan_costs_what_it_was_given[outputs]"}),
    ],
    2: [
        (rewritten("_cut_rows", ("_RADIUS * (1 - 1e-09)", "1.5 * _RADIUS")), {"rows of moments": "core/release/test_moments.py::test_no_record_moves_the_moments_by_more_than_the_sensitivity[across the ball]"}),
        (rewritten("_cut_rows", ("bounds.to_ball(rows)", "rows")), {"rows of moments at any length": "core/release/test_moments.py::test_no_record_moves_the_moments_by_more_than_the_sensitivity[far away]"}),
        (rewritten("plan_moments", ("events[1:]", "None")), {"parts of classes that nobody pays for": "core/release/test_moments.py::test_moments_of_classes_and_of_parts_are_both_paid_for[1.0]"}),
        (given("GaussianEvent.__init__", "_moments_event", sensitivity=99.0), {"moments without the last entry": "core/release/test_moments.py::test_every_entry_has_the_noise_that_is_charged"}),
        (rewritten("_units", ("radius * (1.0 - 1e-09)", "1.5 * radius")), {"vectors of noisy sums": "fair/test_barycenter.py::test_a_record_moves_noisy_sums_by_at_most_twice_the_radius[1-1.0]"}),
        (rewritten("_moments", ("np.clip(rows, -1.0, 1.0)", "rows")), {"moments of features": "fair/test_scores.py::test_no_neighbour_moves_a_release_further_than_its_sensitivity[logistic]"}),
        (rewritten("_clipped", ("shares_of_vectors(own, gram, clip)[:, None]", "1.0")), {"gradients of scores": "fair/test_scores.py::test_no_neighbour_moves_a_release_further_than_its_sensitivity[squared]"}),
        (skipped("DataBounds._shorten", "mapped"), {"rows to the ball": "sampling/test_row_releases.py::test_rows_outside_the_ball_are_shortened"}),
        (rewritten("DataBounds.to_ball", ("np.clip(mapped, -side, side, out=mapped)", "mapped")), {"rows to the box": "core/release/test_bounds.py::test_rows_land_inside"}),
        (rewritten("AutoencoderLoss.clipped_sum", ("by_jacobians(self.clip)", "by_jacobians(1e300)")), {"gradient of an autoencoder": "core/nets/test_steps.py::test_no_neighbour_moves_a_sum_further_than_the_sensitivity"}),
        (rewritten("OuterProducts.gram", ("gradients @ gradients.mT", "(gradients.float() @ gradients.float().mT).double()")), {"norms in single precision": "core/nets/test_clipping_precision.py::test_no_record_contributes_more_than_the_clip"}),
        (rewritten("AutoencoderLoss.clipped_sum", ("by_jacobians(self.clip_jacobian, pulls)", "by_jacobians(1e300, pulls)")), {"Jacobian of the codes of an autoencoder": "core/nets/test_steps.py::test_no_neighbour_moves_a_sum_further_than_the_sensitivity"}),
        (rewritten("AutoencoderLoss.local_vectors", ("shares_of_vectors(pulls, gram, clip)[:, None] * pulls", "pulls")), {"pulls of codes towards a release": "core/nets/test_steps.py::test_no_neighbour_moves_a_sum_with_released_codes_further"}),
        (skipped("ClippedOutputs.values", "outputs", "PriorDistance.vectors"), {"codes that are compared with a prior": "core/nets/test_penalties.py::test_codes_that_are_not_finite_are_bounded_too[1e+300-sphere]"}),
        (skipped("ClippedOutputs.values", "outputs", "ParityDistance.vectors"), {"codes of groups": "core/nets/test_penalties.py::test_codes_that_are_not_finite_are_bounded_too[1e+300-codes of two groups]"}),
        (given("shares_of_vectors", clip=LARGE), {"fair gradient": "fair/test_fair_sums.py::test_twice_the_clip_is_attained"}),
        (given("shares_of_jacobians", clip=LARGE), {
            "Jacobian of a fair output": "fair/test_fair_sums.py::test_the_sensitivity_of_ranked_sums_is_attained[0.99]",
            "Jacobian of a generator": "core/nets/test_steps.py::test_no_neighbour_moves_a_generators_gradient_further_than_the_sensitivity[steep-1.0]"}),
        (given("fixed_side_sensitivity", clip_jacobian=1.0), {"Jacobian of a generator clipped to another norm than the charged one": "sampling/test_generator.py::test_the_sensitivity_is_that_of_the_clip_that_is_used[8.0]"}),
        (skipped("ClippedOutputs.values", "outputs", "clipped_gradient"), {"outputs of a generator": "core/nets/test_steps.py::test_outputs_and_jacobians_of_a_generator_are_clipped_apart"}),
        (given("by_rows", clip=LARGE), {"rows of a Jacobian": "core/nets/test_wasserstein_gradient.py::test_no_neighbour_moves_it_further_than_the_sensitivity[network-X-rows]"}),
        (skipped("ClippedOutputs.values", "outputs", "_Sides.clipped_sum"), {"points of the tool for gradients": "core/nets/test_wasserstein_gradient.py::test_no_neighbour_moves_it_further_than_the_sensitivity[fixed-Z-spectral]"}),
        (given("clipped_fit_gradient", clip=LARGE), {"mean-field Langevin": "contract/test_replaced_records.py::test_no_release_moves_further_than_its_sensitivity[mean-field Langevin]"}),
        (given("_shortened", "_released_sums", radius=LARGE), {"rows of a warm start": "contract/test_replaced_records.py::test_no_release_moves_further_than_its_sensitivity[means]"}),
    ],
    3: [
        (rewritten("_read_charges", ("(kept, tuple(last)) != (seen.sums, seen.last)", "kept != seen.sums")), {"a charge that another machine replaced": "contract/test_ledger_faults.py::test_a_charge_that_a_machine_without_our_locks_replaced_is_missed"}),
        (rewritten("Journal.keep", ("    except LedgerError:\n        self.drop()", "    except LedgerError:\n        pass")), {"a release that is not kept, after others that are": "contract/test_ledger_faults.py::test_a_disk_that_goes_bad_after_the_charge_costs_no_second_one[keep-full]"}),
        (skipped("Ledger.keep"), {"a release that nobody keeps": "core/privacy/test_journal.py::test_a_failure_at_every_release_is_resumed[2-FailureError]"}),
        (rewritten("transaction", ("synchronous = EXTRA", "synchronous = OFF")), {"a release that a power cut undoes": "core/privacy/test_journal.py::test_releases_are_synchronised_before_they_pass"}),
        (rewritten("spawn_streams", ("resumed is not None", "False")), {"noise of a seed, again on a resumed fit": "core/privacy/test_journal.py::test_noise_of_a_resumed_fit_is_new_and_what_is_public_is_not"}),
        (rewritten("Ledger._check_last", ("!= (last,)", "== ()")), {"a place in a resumed fit that is filled twice": "core/privacy/test_journal.py::test_two_attempts_at_once_make_one_release"}),
        (rewritten("_Resumed.take", ("statement != self.plan.statement", "False")), {"another fit on the charge of an interrupted one": "core/privacy/test_journal.py::test_another_fit_is_refused_and_not_charged[change0-another event]"}),
        (rewritten("Ledger.close", ("last is not None", "False")), {"two attempts that go on unkept": "core/privacy/test_journal.py::test_one_attempt_alone_goes_on_without_being_kept[0]"}),
        (skipped("keep_no_more", within="SlicedSketch.partial_fit"), {"a stream that is resumed": "core/privacy/test_journal.py::test_a_stream_that_goes_on_is_not_resumed[LedgerError]"}),
        (skipped("keep_no_more", within="release_mean_start"), {"times that are resumed one by one": "contract/test_resumed_fits.py::test_what_is_released_time_by_time_is_not_kept[paths, mfld, mean]"}),
        (skipped("Journal.end"), {"a fit that ended and can be resumed": "core/privacy/test_journal.py::test_a_failure_at_every_release_is_resumed[2-FailureError]"}),
        (rewritten("release_law", ("return release_score_tables(placed.lists, own, sizes, noise, context.streams.secret, of)", "return [release_score_tables(placed.lists, own, sizes, noise, context.streams.secret, of) for _ in range(2)][0]")), {"counts of scores": "fair/test_bayes_rule.py::test_what_is_charged_is_what_is_released_and_a_refusal_changes_nothing"}),
        (_ONE_STEP, {
            "a batch a step": "contract/test_draws_are_charged.py::test_every_noise_is_charged_as_often_as_it_is_drawn[flow, resample]",
            "a batch a step, by audit": "contract/test_claims_by_audit.py::test_no_audit_proves_more_than_the_claim[projected rows of four steps]"}),
        (all_of(given("Presample._noisy_rows", n_steps=3), _ONE_STEP), {"all rows at every step": "contract/test_draws_are_charged.py::test_every_noise_is_charged_as_often_as_it_is_drawn[flow, presample]"}),
        (given("SampledGaussianEvent.__init__", "plan_training", n_steps=1), {
            "sums of Poisson batches": "contract/test_draws_are_charged.py::test_every_noise_is_charged_as_often_as_it_is_drawn[classifier, threshold]",
            "sums of batches of a fixed size": "contract/test_draws_are_charged.py::test_every_noise_is_charged_as_often_as_it_is_drawn[classifier, ranks, odds]"}),
        (given("plan_tables", n_releases=1), {"fair tables, histograms of a threshold": "contract/test_draws_are_charged.py::test_every_noise_is_charged_as_often_as_it_is_drawn[classifier, threshold]"}),
        (given("SampledGaussianEvent.__init__", "plan_langevin", n_steps=1), {"steps of mean-field Langevin": "trajectories/test_trajectory_privacy.py::test_given_noise_is_stated_with_what_it_costs"}),
        (rewritten("TransportedRows.release", ("others=(noise.event,) if noise is not None and private else ()", "others=()")), {"both domains of an adapter": "contract/test_draws_are_charged.py::test_every_noise_is_charged_as_often_as_it_is_drawn[adapter]"}),
        (rewritten("DPSGD._plan", ("others=(tables.event,) if tables is not None and private else ()", "others=()")), {"distributions of codes": "contract/test_draws_are_charged.py::test_every_noise_is_charged_as_often_as_it_is_drawn[autoencoder, parity, sketch]"}),
        (given("GaussianEvent.__init__", "WarmStartPlan.event", n_steps=1), {"Lloyd steps": "contract/test_draws_are_charged.py::test_every_noise_is_charged_as_often_as_it_is_drawn[paths, mfld, kmeans]"}),
        (instead("SecretStream.generator", the_same_generator), {"a generator that starts anew": "contract/test_noise.py::test_noise_has_the_law_that_is_charged[rows, float]"}),
    ],
    4: [
        (charged_late("SlicedSketch._release"), {"SlicedSketch.fit": "contract/test_charges.py::test_the_charge_is_on_the_disk_before_noise_and_rows[sketch]"}),
        (charged_late("SlicedSketch.partial_fit"), {"SlicedSketch.partial_fit": "contract/test_charges.py::test_whoever_publishes_charges_first[stream]"}),
        (charged_late("DPSlicedFlowSampler.fit"), {
            "DPSlicedFlowSampler, sketch": "contract/test_charges.py::test_the_charge_is_on_the_disk_before_noise_and_rows[flow]",
            "DPSlicedFlowSampler, moments": "contract/test_charges.py::test_the_charge_is_on_the_disk_before_noise_and_rows[flow, moments]",
            "DPSlicedFlowSampler, resample": "contract/test_charges.py::test_the_charge_is_on_the_disk_before_noise_and_rows[flow, resample]",
            "DPSlicedFlowSampler, presample": "contract/test_charges.py::test_the_charge_is_on_the_disk_before_noise_and_rows[flow, presample]"}),
        (charged_late("DPSlicedGenerator.fit"), {
            "DPSlicedGenerator, sketch": "contract/test_charges.py::test_the_charge_is_on_the_disk_before_noise_and_rows[generator]",
            "DPSlicedGenerator, smoothing": "contract/test_charges.py::test_the_charge_is_on_the_disk_before_noise_and_rows[generator, smoothing]",
            "DPSlicedGenerator, gradient": "contract/test_charges.py::test_the_charge_is_on_the_disk_before_noise_and_rows[generator, gradient]"}),
        (charged_late("PrivateSWAutoencoder.fit"), {
            "PrivateSWAutoencoder": "contract/test_charges.py::test_the_charge_is_on_the_disk_before_noise_and_rows[autoencoder]",
            "PrivateSWAutoencoder, parity": "contract/test_charges.py::test_the_charge_is_on_the_disk_before_noise_and_rows[autoencoder, parity]"}),
        (charged_late("FairPrivateClassifier.fit"), {
            "FairPrivateClassifier, sketch": "contract/test_charges.py::test_the_charge_is_on_the_disk_before_noise_and_rows[classifier, threshold]",
            "FairPrivateClassifier, ranks": "contract/test_charges.py::test_the_charge_is_on_the_disk_before_noise_and_rows[classifier, ranks]",
            "FairPrivateClassifier, bayes": "contract/test_charges.py::test_the_charge_is_on_the_disk_before_noise_and_rows[classifier, bayes]"}),
        (charged_late("FairPrivatePostProcessor.fit"), {
            "FairPrivatePostProcessor": "contract/test_charges.py::test_the_charge_is_on_the_disk_before_noise_and_rows[post-processor]"}),
        (charged_late("FairPrivateRegressor.fit"), {
            "FairPrivateRegressor, barycenter": "contract/test_charges.py::test_the_charge_is_on_the_disk_before_noise_and_rows[regressor, barycenter]",
            "FairPrivateRegressor, sketch": "contract/test_charges.py::test_the_charge_is_on_the_disk_before_noise_and_rows[regressor]",
            "FairPrivateRegressor, ranks": "contract/test_charges.py::test_the_charge_is_on_the_disk_before_noise_and_rows[regressor, ranks]"}),
        (charged_late("FairPrivateTransformer.fit"), {"FairPrivateTransformer": "contract/test_charges.py::test_the_charge_is_on_the_disk_before_noise_and_rows[fair transformer]"}),
        (charged_late("PrivateTrajectorySampler.fit"), {
            "PrivateTrajectorySampler, sketch": "contract/test_charges.py::test_the_charge_is_on_the_disk_before_noise_and_rows[paths]",
            "PrivateTrajectorySampler, mfld": "contract/test_charges.py::test_the_charge_is_on_the_disk_before_noise_and_rows[paths, mfld, kmeans]"}),
        (charged_late("PrivateWassersteinDistance.fit"), {"PrivateWassersteinDistance, fit": "contract/test_charges.py::test_the_charge_is_on_the_disk_before_noise_and_rows[distance]"}),
        (charged_late("PrivateWassersteinDistance.transform"), {"PrivateWassersteinDistance, transform": "contract/test_charges.py::test_whoever_publishes_charges_first[transform]"}),
        (charged_late("Party.publish_sketch"), {"a party's sketch": "contract/test_charges.py::test_whoever_publishes_charges_first[party]"}),
        (charged_late("DPTableSynthesizer.fit"), {
            "DPTableSynthesizer": "contract/test_charges.py::test_the_charge_is_on_the_disk_before_noise_and_rows[synthesizer]",
            "DPTableSynthesizer, private schema": "contract/test_charges.py::test_the_charge_is_on_the_disk_before_noise_and_rows[synthesizer, nothing known]"}),
        (charged_late("PrivateScaler.fit"), {"PrivateScaler": "contract/test_charges.py::test_the_charge_is_on_the_disk_before_noise_and_rows[scaler]"}),
    ],
    5: [
        (given("Strategy.sensitivity", "plan_sketch", conditional=False), {
            "sketch with classes": "core/release/test_sensitivity.py::test_a_change_of_class_alone_needs_the_larger_sensitivity",
            "sketch with classes, by audit": "contract/test_claims_by_audit.py::test_no_audit_proves_more_than_the_claim[sketch with classes]"}),
        (given("plan_threshold", public_classes=True), {"threshold, class taken as public": "fair/test_fair_privacy.py::test_the_threshold_pays_for_what_a_record_changes[sketch, demographic_parity, tuned]"}),
    ],
    6: [
        (rewritten("_clipped_shares", ("np.sqrt(np.einsum('bk,bk,bk->b', shares, shares, squares))", "shares * np.sqrt(squares)"), ("where=spread)[:, None]", "where=spread)")), {
            "one record": "trajectories/test_langevin.py::test_no_neighbour_moves_a_sum_further_than_twice_the_clip",
            "a whole step": "contract/test_replaced_records.py::test_no_release_moves_further_than_its_sensitivity[mean-field Langevin]"}),
    ],
    7: [
        (rewritten("SampledGaussianEvent.rate", ("max(", "min(")), {"the smallest share of a group": "sampling/test_autoencoder_privacy.py::test_the_event_and_the_sensitivity_are_those_of_the_batches_of_groups[a small group]"}),
        (given("SampledGaussianEvent.__init__", "plan_training", sampling_rate=half), {"Poisson batches of training": "sampling/test_autoencoder_privacy.py::test_the_stated_epsilon_is_that_of_dp_accounting"}),
        (given("placed_batches", "TrainingPlan.batches", rate=twice), {"Poisson batches drawn twice as large": "core/nets/test_steps.py::test_batches_are_fresh_and_as_large_as_is_charged[autoencoder]"}),
        (given("SampledGaussianEvent.__init__", "plan_rows", batch_sizes=half), {"batches of projected rows, without_replacement": "sampling/test_row_releases.py::test_batches_are_as_large_as_is_charged[without_replacement]"}),
        (given("SampledGaussianEvent.__init__", "plan_rows", sampling_rate=half), {"batches of projected rows, poisson": "sampling/test_row_releases.py::test_batches_are_as_large_as_is_charged[poisson]"}),
        (given("SampledGaussianEvent.__init__", "plan_langevin", sampling_rate=half), {"event of mean-field Langevin": "trajectories/test_trajectory_privacy.py::test_given_noise_is_stated_with_what_it_costs"}),
        (given("poisson_batches", "mean_field_langevin", rate=twice), {"batches of mean-field Langevin": "trajectories/test_langevin.py::test_every_record_takes_part_at_the_rate_of_the_event"}),
        (given("_coin_sample", threshold=one_more), {"coins that land in more often": "core/privacy/test_subsampling.py::test_poisson_rate_is_never_exceeded"}),
    ],
    8: [
        (rewritten("_of_rho", ("delta + (1.0 - delta) * worst.leak", "worst.leak")), {"delta of approximate zCDP": "core/privacy/test_other_libraries.py::test_concentrated_but_for_a_delta[replace_one]"}),
        (rewritten("_of_accountant", ("2.0 * epsilon", "epsilon")), {"a replaced record of diffprivlib counted as one that is added": "core/privacy/test_other_libraries.py::test_tools_of_diffprivlib_that_count_and_that_average_are_both_covered[1.0]"}),
        (given("SingleFitTarget.__init__", "privacy_target", delta=0.001), {"a fit is calibrated to another delta": "trajectories/test_trajectory_privacy.py::test_epsilon_of_a_sketch_is_that_of_its_noise[bounds0-1]"}),
        (given("LossDistribution.delta", self=without_infinite_losses), {"infinite losses not counted": "core/privacy/test_accounting.py::test_an_infinite_loss_counts_fully_with_and_without_a_gaussian"}),
        (rewritten("_upper_masses", (" + error", "")), {"rounding errors of transforms not covered": "core/privacy/test_accounting.py::test_composed_masses_bound_the_exact_ones_far_into_the_tail[subset]"}),
        (rewritten("_composed", ("math.exp(_LOG_TAIL)", "0.0")), {"losses beyond the window not counted": "core/privacy/test_accounting.py::test_losses_beyond_the_window_count_as_infinite"}),
        (rewritten("absent_delta", (" + _CANCELLED * rate", "")), {"rounding of a profile not counted": "core/privacy/test_accounting.py::test_what_cancels_near_the_largest_loss_is_added[0.9-12.0]"}),
        (rewritten("clipped_sum_delta", ("_CANCELLED *", "0.0 *")), {"rounding of a sum's profile not counted": "core/privacy/test_accounting.py::test_what_cancels_in_a_sum_of_clipped_vectors_is_added[1e-08]"}),
        (rewritten("_epsilon", (" * (1.0 - 2.0 * ROUNDING)", "")), {"no room for other machines in _epsilon": "core/privacy/test_spent.py::test_a_statement_bounds_what_any_machine_computes[1e-05-event1]"}),
        (rewritten("SingleFitTarget.admits", ("(1.0 + 2.0 * ROUNDING) * ", "")), {"no room for other machines in SingleFitTarget.admits": "core/privacy/test_calibration.py::test_a_single_fit_pays_for_the_noise_sampler_exactly"}),
        (given("Terms.admit", self=without_a_cap_of_leaks), {"leaks of a ledger not capped": "core/privacy/test_budget.py::test_either_cap_refuses"}),
        (rewritten("event_cost", ("leak_units if", "0 if")), {"leaks of sampled fits not charged": "core/privacy/test_calibration.py::test_a_thousand_sampled_fits_share_the_leaks_of_a_ledger"}),
        (rewritten("_fit", ("None if args.unit else table.n_rows", "table.n_rows")), {"delta of a fit of persons by their rows": "cli/test_synth_command.py::test_delta_of_a_fit_does_not_follow_from_a_private_number_of_rows[--unit who-1e-05]"}),
        (returning("exact_leak", 0, "SingleFitTarget.admits"), {"error of the noise sampler not paid for": "core/privacy/test_calibration.py::test_a_single_fit_pays_for_the_noise_sampler_exactly"}),
    ],
    9: [
        (instead("ranked_projections", sorted_as_numpy_does), {
            "Wasserstein gradient": "core/nets/test_penalties.py::test_ties_keep_their_order_when_a_record_is_replaced[outputs]",
            "codes of groups": "core/nets/test_penalties.py::test_ties_keep_their_order_when_a_record_is_replaced[codes of groups]",
            "fair sums": "fair/test_fair_sums.py::test_ties_of_a_thousand_clipped_outputs_keep_their_order[0.1]"}),
        (rewritten("PriorDistance.vectors", ("projections.argsort(dim=1, stable=True)", "torch.from_numpy(projections.numpy().argsort(axis=1))")), {"codes that are compared with a prior": "core/nets/test_penalties.py::test_ties_keep_their_order_when_a_record_is_replaced[prior]"}),
    ],
    10: [
        (rewritten("RankedOutputs._plan", ("sum(sizes), penalty,", "sum(sizes), ParityPenalty(cells.strata, cells.sizes),")), {"sensitivity of fair sums by ranks": "fair/test_fair_privacy.py::test_ranked_sums_have_the_sensitivity_of_their_batches_and_directions[ranks, equalized_odds]"}),
        (all_of(rewritten("noisy_gradient_steps", ("plan.batch_size *", "plan.n_samples *")), given("release_gradient", "noisy_gradient_steps", plan=with_a_batch_of_all)), {"noise of a generator's mean gradient": "core/nets/test_steps.py::test_a_step_is_the_noisy_sum_of_its_batch_over_the_public_batch_size[generator]"}),
        (rewritten("PrivateWassersteinGradient.steps", ("sides.sensitivity(sizes", "sides.sensitivity([len(side) for side in rows]")), {"sensitivity of the tool for gradients": "core/nets/test_wasserstein_gradient.py::test_a_gradient_has_the_noise_of_its_event[both]"}),
        (given("DPSGD._plan", loss=compared_in_one_batch), {"sensitivity of the codes of groups": "sampling/test_autoencoder_privacy.py::test_the_event_and_the_sensitivity_are_those_of_the_batches_of_groups[a small group]"}),
        (rewritten("ParityPenalty.sensitivity", ("min(compared)", "sum(compared)")), {"sensitivity of a mean gradient": "core/nets/test_penalties.py::test_the_worst_case_is_attained[two groups]"}),
    ],
    11: [
        (instead("fixed_size_batches", cut_from_one_permutation), {
            "batches themselves": "core/privacy/test_subsampling.py::test_successive_pairs_of_batches_are_uniform",
            "cells of training": "core/nets/test_steps.py::test_batches_are_fresh_and_as_large_as_is_charged[autoencoder, parity]",
            "fair sums by ranks": "core/nets/test_steps.py::test_batches_are_fresh_and_as_large_as_is_charged[ranks]",
            "projected rows": "sampling/test_row_releases.py::test_without_noise_the_values_are_projections_of_a_batch"}),
    ],
    12: [
        (rewritten("noisy_batches", ("values.sort(axis=1)", "pass")), {"projected rows": "sampling/test_row_releases.py::test_shapes_types_and_order[orthogonal-discrete]"}),
        (all_of(rewritten("noisy_batches", ("values.sort(axis=1)", "pass")), returning("DataBounds.to_ball", with_sorted_columns, "noisy_batches")), {"sorted before the noise": "sampling/test_row_mechanisms.py::test_values_are_sorted_after_the_noise[orthogonal-resample]"}),
        (returning("_ordered_sample", np.sort), {"members of a batch of a fixed size": "core/privacy/test_subsampling.py::test_ordered_fixed_size_batches_are_uniform[7-3]"}),
        (returning("_coin_sample", np.sort), {"members of a Poisson batch": "core/privacy/test_subsampling.py::test_ordered_poisson_batches_have_their_probabilities"}),
    ],
    13: [
        (skipped("check_per_record"), {
            "the check itself": "core/nets/test_private_modules.py::test_refused[layer0-'1' \\\\(BatchNorm1d\\\\).*GroupNorm]",
            "generator": "contract/test_refusals.py::test_what_is_refused_charges_and_changes_nothing_and_quotes_no_value[generator, BatchNorm]"}),
        (rewritten("check_per_record", ("isinstance(layer, nn.modules.batchnorm._BatchNorm)", "False"), ("getattr(layer, 'track_running_stats', False)", "False")), {
            "autoencoder": "contract/test_refusals.py::test_what_is_refused_charges_and_changes_nothing_and_quotes_no_value[autoencoder, BatchNorm]",
            "fair predictor": "contract/test_refusals.py::test_what_is_refused_charges_and_changes_nothing_and_quotes_no_value[classifier, BatchNorm, sketch]"}),
    ],
    14: [
        (rewritten("StepDirections.largest_norm", ("math.ceil(", "(")), {
            "directions of a step": "sampling/test_row_releases.py::test_largest_norm_is_one[31-8-orthogonal]",
            "projected rows": "sampling/test_row_releases.py::test_the_worst_record_moves_a_truncated_block_by_the_sensitivity"}),
    ],
    15: [
        (skipped("SlicedSketch._check_readable", within="SlicedSketch.__getstate__"), {"state of the sketch": "core/release/test_sketch_use.py::test_an_open_sketch_cannot_be_read_or_copied[state]"}),
        (all_of(skipped("SlicedSketch._check_readable", within="SlicedSketch.__getstate__"), as_any_object("NoisyAccumulator.__reduce_ex__"), as_any_object("NoisyAccumulator.__getstate__")), {"pickles of the sketch": "core/release/test_sketch_use.py::test_an_open_sketch_cannot_be_read_or_copied[pickle]"}),
        (skipped("NoisyAccumulator.__copy__", "self"), {"copies of the accumulator": "core/release/test_sketch_use.py::test_an_open_sketch_cannot_be_read_or_copied[copy of the accumulator]"}),
        (rewritten("NoisyAccumulator._check_whole", ("os.getpid() != self._process", "False")), {"a fork": "core/release/test_neighbours.py::test_a_fork_cannot_use_the_noise_of_an_open_sketch"}),
        (rewritten("NoisyAccumulator.add", ("del self._table", "pass")), {"a chunk that was half added": "core/release/test_sketch_use.py::test_an_interrupted_chunk_ends_the_stream_for_good[KeyboardInterrupt]"}),
    ],
    16: [
        (instead("LatticeNoise.mu", mu_off_the_lattice), {"noise that is planned": "core/privacy/test_noise.py::test_exact_profile_stays_below_what_is_charged[shift0-1.0]"}),
        (given("step_mu", lattice=None), {"noise that is charged": "core/privacy/test_events.py::test_gaussian_mu_charges_the_lattice"}),
        (given("sampled_step_mu", lattice=None), {"noise of sums over Poisson samples": "core/privacy/test_noise.py::test_the_account_of_a_sampled_sum_is_that_of_its_random_rounding"}),
        (skipped("rounded_sensitivity", "sensitivity", "noise_for_sums"), {"sums rounded for free": "core/privacy/test_noise.py::test_rounded_sums_stay_within_the_sensitivity"}),
        (all_of(given("round_to_lattice", "noisy_sum", x=np.zeros_like), returning("noisy_sum", plus_exact_values)), {"sums on no lattice": "core/privacy/test_noise.py::test_a_noisy_sum_lies_on_the_lattice"}),
    ],
    17: [
        (rewritten("_charge_once", ("max(events", "min(events")), {"the most private of several parties": "distance/test_protocols.py::test_a_shared_budget_pays_for_the_least_private_party[1]"}),
        (rewritten("Sliced.matrix", ("isinstance(parties[0], Party)", "True")), {"parties in a list": "distance/test_wasserstein_distance.py::test_parties_with_different_people_share_one_charge[list]"}),
        (rewritten("FairGradients._training", ("(task.bins, tables)", "(tables,)")), {"bins of the target": "contract/test_draws_are_charged.py::test_every_noise_is_charged_as_often_as_it_is_drawn[regressor, odds]"}),
        (rewritten("Barycenter._plan", ("[spread.event, ", "[")), {"the spread of targets": "contract/test_draws_are_charged.py::test_every_noise_is_charged_as_often_as_it_is_drawn[regressor, barycenter]"}),
        (rewritten("Barycenter._plan", ("transport.events if", "transport.events[1:] if")), {"predictions that are moved": "contract/test_draws_are_charged.py::test_every_noise_is_charged_as_often_as_it_is_drawn[regressor, barycenter]"}),
        (rewritten("plan_scores", ("(*events, steps)", "(steps,)")), {"moments of features": "fair/test_scores.py::test_all_releases_together_cost_what_was_asked_for[0.5-linear]"}),
        (rewritten("GroupScorePlan.events", ("*hidden", "")), {"probabilities of groups": "fair/test_bayes_rule.py::test_what_is_charged_is_what_is_released_and_a_refusal_changes_nothing"}),
        (rewritten("BayesRule.release", ("[] if noise is None", "[] if True")), {"counts of scores": "fair/test_bayes_rule.py::test_what_is_charged_is_what_is_released_and_a_refusal_changes_nothing"}),
        (skipped("BoundsPlan.before", "event"), {
            "sketch": "contract/test_noise.py::test_private_bounds_are_paid_for_by_more_noise",
            "sketches of trajectories": "trajectories/test_trajectory_privacy.py::test_epsilon_of_a_sketch_is_that_of_its_noise[private-1]",
            "projected rows": "sampling/test_row_releases.py::test_private_bounds_take_a_tenth"}),
        (returning("plan_training", charged_for_its_last_phase), {
            "targets of a regressor": "contract/test_draws_are_charged.py::test_every_noise_is_charged_as_often_as_it_is_drawn[regressor]",
            "training": "contract/test_draws_are_charged.py::test_every_noise_is_charged_as_often_as_it_is_drawn[autoencoder]"}),
        (rewritten("plan_langevin", ("isinstance(one, BoundsPlan | WarmStartPlan)", "isinstance(one, WarmStartPlan)")), {"mean-field Langevin": "trajectories/test_trajectory_privacy.py::test_epsilon_of_mfld_is_that_of_its_noise[options2-1-warm2]"}),
        (rewritten("plan_tables", ("(first.event,)", "()")), {"schema of a synthesizer": "contract/test_draws_are_charged.py::test_every_noise_of_a_table_is_charged[synthesizer, nothing known]"}),
        (returning("BoundsPlan.event", the_first_phase), {"norms after features": "contract/test_draws_are_charged.py::test_every_noise_is_charged_as_often_as_it_is_drawn[flow]", "norms after sizes": "contract/test_plans.py::test_a_plan_costs_what_it_was_given[bounds of few rows]"}),
        (rewritten("plan_private_bounds", ("n_steps=N_ROUNDS", "n_steps=1")), {"rounds of histograms after the first": "contract/test_plans.py::test_a_plan_costs_what_it_was_given[bounds of features]"}),
    ],
    18: [
        (returning("faults_of_callers", (), "charge"), {"a fit that says nothing of who divides its rows": "core/privacy/test_check_search.py::test_a_fit_warns_of_a_stratified_split_and_of_no_other[scores]"}),
        (rewritten("_of_cv", ("classifier=classifier", "classifier=False")), {"folds by labels taken for folds by place": "core/privacy/test_check_search.py::test_a_search_that_moves_several_rows_is_refused_and_its_fits_warn[grid]"}),
        (rewritten("_of_kind", ("!= value", "is None")), {"a bootstrap": "core/privacy/test_check_search.py::test_a_search_that_moves_several_rows_is_refused_and_its_fits_warn[bootstrap]"}),
        (rewritten("_tried", ("len(np.unique(train)) < len(train)", "False")), {"a row twice in a list of positions": "core/privacy/test_check_search.py::test_a_row_that_comes_twice_is_refused"}),
        (rewritten("PersonKFold._iter_test_indices", (".argsort().argsort()", ".argsort()")), {"persons that move with the names of others": "core/privacy/test_check_search.py::test_persons_move_alone"}),
        (rewritten("PersonKFold._iter_test_indices", ("folds[persons] == fold", "folds[np.bincount(persons).argsort().argsort()][persons] == fold")), {"persons that move with the rows of others": "core/privacy/test_check_search.py::test_persons_move_alone"}),
        (rewritten("TableFit._chosen", ("release_choices(rows,", "release_choices(type(rows)(rows._rows.map(lambda batch: (batch[0], None))),")), {"rows of a person that weigh one each in a choice": "contract/test_unit_of_privacy.py::test_rows_that_a_person_repeats_change_nothing"}),
        (returning("TablePlan.choice_sigma", half), {"a choice with less noise than the rows of a person need": "contract/test_unit_of_privacy.py::test_all_rows_of_a_person_move_no_release_further_than_charged[row-known]"}),
        (rewritten("NoisyAccumulator.add", ("* units // plan.n_units", "")), {"rows of a person that weigh one each in a sketch": "contract/test_unit_of_privacy.py::test_all_rows_of_a_person_move_no_sketch_further_than_one_row[sketch]"}),
        (rewritten("SlicedSketch._release", ("int(persons.max()) + 1", "rows.n_rows")), {"a private number of rows of a sketch": "contract/test_unit_of_privacy.py::test_nothing_shows_how_many_rows_there_are[sketch]"}),
        (rewritten("SyntheticRows.fit", ("getattr(release.value, 'n_samples_', None)", "None")), {"a private number of rows of a sampler": "contract/test_unit_of_privacy.py::test_nothing_shows_how_many_rows_there_are[flow]"}),
        (rewritten("Unit.draw", ("ranks < self.max_rows", "ranks >= 0")), {"all rows of a person counted": "contract/test_unit_of_privacy.py::test_all_rows_of_a_person_move_no_release_further_than_charged[row-known]"}),
        (rewritten("Unit.draw", ("units / UNITS", "np.ones(len(units))")), {"rows of a person that weigh one each": "contract/test_unit_of_privacy.py::test_all_rows_of_a_person_move_no_release_further_than_charged[person-known]"}),
        (rewritten("Unit.draw", ("UNITS % shared", "shared")), {"a unit too much for most rows": "contract/test_unit_of_privacy.py::test_rows_are_drawn_evenly_and_share_what_a_person_weighs[5-person]"}),
        (given("TablePlan.__init__", "plan_tables", weight=1.0), {"the noise of one row for several": "contract/test_unit_of_privacy.py::test_all_rows_of_a_person_move_no_release_further_than_charged[row-known]"}),
        (rewritten("Unit.draw", ("order[starts]", "order[:len(starts)]")), {"several rows of a person for one": "contract/test_unit_of_privacy.py::test_rows_are_drawn_evenly_and_share_what_a_person_weighs[1-person]"}),
        (rewritten("DPTableSynthesizer.fit", ("int(persons.max()) + 1", "rows.n_rows")), {"a private number of rows": "contract/test_replay.py::test_a_fit_follows_from_its_releases[synthesizer, persons]"}),
        (rewritten("TableFit.model", ("self.plan.counted(tables_of(found.releases[-1]))", "replace(self.plan, n_samples=int(self.rows.value[1].sum()))")), {"a private weight of all rows": "contract/test_replay.py::test_a_fit_follows_from_its_releases[synthesizer, nothing known, rows]"}),
        (given("Strategy.sensitivity", group_size=1), {
            "table of a sketch": "core/release/test_sensitivity.py::test_the_worst_neighbours_reach_the_bound_and_do_not_exceed_it[two rows of a person]",
            "table of a sketch, by audit": "contract/test_claims_by_audit.py::test_no_audit_proves_more_than_the_claim[sketch of persons]"}),
        (given("SlicedSketch.__init__", "FitContext.sketch", group_size=1), {"sketches of trajectories": "trajectories/test_trajectory_privacy.py::test_epsilon_of_a_sketch_is_that_of_its_noise[bounds0-3]"}),
        (rewritten("plan_private_bounds", ("group_size * math.sqrt(2 * n_features)", "math.sqrt(2 * n_features)")), {"histograms of bounds": "contract/test_replaced_records.py::test_no_release_moves_further_than_its_sensitivity[bounds of features, three rows of a person]"}),
        (given("planned_bounds", group_size=1), {"bounds of a sketch": "core/release/test_public_labels.py::test_private_bounds_pool_the_rows_of_a_person"}),
        (given("Event.grouped", group_size=1), {"rows of different times": "core/privacy/test_group_privacy.py::test_rows_of_different_parts_move_all_parts_together_by_the_root_of_their_number"}),
        (given("Event.grouped", "plan_langevin", group_size=1), {"steps of mean-field Langevin": "trajectories/test_trajectory_privacy.py::test_epsilon_of_mfld_is_that_of_its_noise[options0-3-warm0]"}),
        (given("Event.grouped", "WarmStartPlan.event", group_size=1), {"warm start": "contract/test_plans.py::test_a_plan_costs_what_it_was_given[clusters]"}),
        (rewritten("PrivacyLoss.group_epsilon", ("steps + (k - 1) * x", "0.0")), {"delta of a chain not added up": "core/privacy/test_group_privacy.py::test_a_group_of_what_leaks_is_bounded_or_nothing_is_said"}),
        (rewritten("PrivacyLoss.group_epsilon", ("k * self.mu_without_sampling", "math.sqrt(k) * self.mu_without_sampling")), {"a chain of one statistic by the root": "core/privacy/test_group_privacy.py::test_epsilon_over_k_is_more_than_epsilon_for_k_rows[5-3.583]"}),
        (given("PrivacyLoss.group_epsilon", leak=0.0), {"leaks of a group forgotten": "core/privacy/test_group_privacy.py::test_a_group_of_selected_categories_is_bounded"}),
        (returning("Event.group_leak", 0.0), {"leaks of a chain forgotten": "core/privacy/test_group_privacy.py::test_a_group_of_what_leaks_is_bounded_or_nothing_is_said"}),
    ],
    19: [
        (rewritten("_plain", ("<= LARGEST_NUMBER", "< 1e290")), {"numbers that a learned rule cannot hold": "contract/test_finite_tables.py::test_values_by_which_this_failed[large numbers]"}),
        (rewritten("TickColumn.from_numbers", (".clip(first - 86400, last + 2 * 86400 - 1)", "")), {"a warning of far times": "contract/test_finite_tables.py::test_values_by_which_this_failed[far times in a chain]"}),
        (rewritten("SumTo.check", ("lower == -np.inf and upper > most", "False"), ("upper == np.inf and lower < least", "False")), {"bounds that a fit finds against a stated one": "contract/test_finite_tables.py::test_open_bounds_that_a_fit_could_find_against_a_stated_one_are_refused"}),
        (checked_late("check_arrivals", "SlicedSketch.partial_fit"), {"too many rows in a stream": "core/release/test_sketch_use.py::test_what_cannot_be_fitted_is_refused_before_any_charge[too many rows]"}),
        (skipped("check_scores", within="FairPrivatePostProcessor.fit"), {"a classifier of other columns": "contract/test_strangers.py::test_what_does_not_fit_a_classifier_is_said_before_the_charge[a missing column]"}),
        (skipped("try_out", within="PrivateSearchCV.fit"), {"a score that fails on any rows": "contract/test_strangers.py::test_a_stranger_fails_before_the_charge_or_not_at_all[PrivateSearchCV-scoring-raises]"}),
        (skipped("_try_callbacks"), {"a callback that fails": "contract/test_strangers.py::test_a_stranger_fails_before_the_charge_or_not_at_all[FairPrivateClassifier-callbacks-raises]"}),
        (skipped("check_steps", within="MeanFieldLangevin.release"), {"steps that diverge": "contract/test_refusals.py::test_what_is_refused_charges_and_changes_nothing_and_quotes_no_value[mfld, a long step]"}),
        (checked_late("check_per_record", "Gradient.release"), {"a network that mixes records": "contract/test_refusals.py::test_what_is_refused_charges_and_changes_nothing_and_quotes_no_value[generator, BatchNorm]"}),
        (rewritten("Ledger.admit", ("next(allowed, None)", "charges[-1]")), {"a budget that is used up": "core/privacy/test_budget.py::test_a_refused_charge_changes_nothing"}),
        (checked_late("resolve_device", "SlicedSketch._open"), {"a device that is not there": "core/release/test_sketch_use.py::test_what_cannot_be_fitted_is_refused_before_any_charge[no device]"}),
        (skipped("SecureSum.agree"), {"parties with other plans": "distance/test_secure_sum.py::test_what_does_not_fit_together_is_refused_before_any_charge[epsilon]"}),
        (skipped("_check_drawable"), {"noise of a table that cannot be drawn": "tables/test_table_synthesizer_privacy.py::test_a_refused_fit_charges_and_changes_nothing_and_quotes_no_value[synthesizer, noise too small]"}),
        (all_of(instead("TableSchema.read", columns_as_they_are, "DPTableSynthesizer.fit"), instead("RowMap.to_model", columns_of_the_model, "DPTableSynthesizer.fit")), {"a value that the schema does not list": "tables/test_table_synthesizer_privacy.py::test_a_refused_fit_charges_and_changes_nothing_and_quotes_no_value[synthesizer, a value of no category]"}),
    ],
    20: [
        (returning("SampledGaussianEvent._steps", nearly_normal_steps), {
            "below what is attained": "core/privacy/test_accounting.py::test_limit_for_poisson_samples_lies_below_what_is_attained",
            "batches of projected rows": "sampling/test_row_releases.py::test_cost_of_given_noise_by_another_route[sampled]"}),
        (returning("SampledGaussianEvent._steps", steps_on_poisson_samples), {"Poisson account for batches of a fixed size": "core/privacy/test_accounting.py::test_golden_values[5.0]"}),
        (rewritten("_of_rho", ("mu=worst.mu", "mu=math.sqrt(2.0 * rho)")), {"zero-concentrated privacy as Gaussian noise": "core/privacy/test_other_libraries.py::test_zero_concentrated_counts_cost_no_more_than_is_charged[replace_one-Gaussian, 1.0]"}),
        (rewritten("_cost", ("gained * (y + a) / (y - np.minimum(a, 0.0))", "gained")), {"orders of a zero-concentrated release": "core/privacy/test_concentrated.py::test_no_search_finds_a_concentrated_pair_that_costs_more[2.0]"}),
        (rewritten("zcdp_profile", ("a * math.tanh(a / 2.0) >= rho", "a * a / 2.0 >= rho")), {"randomised response of zero-concentrated privacy": "core/privacy/test_concentrated.py::test_randomised_response_attains_the_charge[0.5]"}),
        (rewritten("_dominates", ("bool(np.all(crossing >= 0.0))", "True")), {"a bound that holds at nodes alone": "core/privacy/test_accounting.py::test_a_coarse_loss_is_dominated_between_its_nodes_too[0.1]"}),
    ],
    21: [
        (given("guessing_p_value", delta=0.0), {"delta of the claim": "audit/test_guessing.py::test_golden_ceiling"}),
        (rewritten("mu_lower_bound", ("- mu)", "- mu / 2)")), {"a trade-off of half of the noise": "audit/test_guessing.py::test_gaussian_bound_is_attained[0.72]"}),
        (returning("PrivacyLoss.is_sampled", False, "claimed"), {"the bound of Gaussian noise for secret batches": "audit/test_one_run.py::test_the_stronger_bound_is_for_gaussian_noise_that_all_records_see"}),
        (rewritten("EvidenceSum.add", ("- coins @", "+ coins @")), {"coins in a residual": "audit/test_noise.py::test_p_values_of_correct_noise_are_uniform"}),
        (rewritten("NoiseEvidence.of", ("group.n_numbers >= _FEWEST_TESTED", "False")), {"small releases": "audit/test_noise.py::test_small_releases_are_tested_together"}),
        (rewritten("AuditTask.leak", ("difference((rows[np.arange(len(rows)) // 2], labels))", "difference(own)")), {"outputs beside the releases": "audit/test_missing_noise.py::test_an_output_beside_the_releases_is_refuted"}),
    ],
    22: [
        (rewritten("Page._propose", ("if example and (not detail)", "if False")), {"bounds of a guess where none were stated": "cli/test_page.py::test_an_empty_statement_cannot_be_confirmed"}),
        (rewritten("Page._propose", ("if facts else _REFUSED", "")), {"bounds of a guess where others were refused": "cli/test_page.py::test_an_empty_statement_cannot_be_confirmed"}),
        (rewritten("Page._confirm", ("shown is not self.shown", "False")), {"a guess that is no longer shown": "cli/test_page.py::test_the_schema_that_was_shown_is_confirmed_and_no_other"}),
        (rewritten("select_categories", ("event.threshold * units", "(event.threshold - 2 * event.sigma) * units")), {"a threshold two sigma lower": "tables/test_category_selection.py::test_counts_of_one_are_shown_as_often_as_the_event_says"}),
        (given("calibrate_lattice", "plan_category_selection", sensitivity=1.0), {"a plan in which one count moves": "contract/test_plans.py::test_a_plan_costs_what_it_was_given[categories]"}),
        (returning("ThresholdedCountsEvent.sensitivity", 1.0), {"an event in which one count moves": "core/privacy/test_selection.py::test_no_neighbours_exceed_what_is_charged[grid3]"}),
        (rewritten("ThresholdedCountsEvent._passes", ("Fraction(1, 2)", "Fraction(3, 2)")), {"a tail that starts a step too far out": "core/privacy/test_selection.py::test_the_tail_is_a_close_bound[3.0-16.0]"}),
        (given("ThresholdedCountsEvent.group_leak", self=of_one_column), {"the tail of one column for all": "core/privacy/test_selection.py::test_no_neighbours_of_two_columns_exceed_what_is_charged"}),
        (given("ThresholdedCountsEvent._steps", self=of_one_column), {"one column charged for all": "core/privacy/test_selection.py::test_no_neighbours_of_two_columns_exceed_what_is_charged"}),
        (rewritten("PrivacyLoss.delta", ("self.leak + (1.0 - self.leak) * ", "")), {"tails that delta forgets": "core/privacy/test_selection.py::test_no_neighbours_exceed_what_is_charged[grid0]"}),
        (returning("leak_of_steps", 0.0, "_epsilon"), {"tails that epsilon forgets": "core/privacy/test_selection.py::test_the_account_is_a_gaussian_unless_something_leaks"}),
        (rewritten("_certain_leak_units", ("_in_leak_units(loss.leak, math.ceil)", "0")), {"tails that a ledger forgets": "core/privacy/test_selection.py::test_a_budget_remembers_the_tail_and_admits_as_many_as_fit"}),
        (rewritten("count_categories", ("type(plain).__name__", "''")), {"the first of equal values stands for the others": "tables/test_category_selection.py::test_equal_values_of_different_types_are_not_merged"}),
    ],
    23: [
        (given("discrete_gaussian", "release_misfits", s=1.0), {"misfits without noise": "tables/test_marginal_release.py::test_noise_of_misfits_has_the_stated_standard_deviation"}),
        (returning("release_marginals", with_true_counts), {"counts are kept before the noise is added": "tables/test_marginal_release.py::test_what_is_recorded_has_its_noise"}),
        (given("noise_lattice", "_noise", data_lattice=0.3), {"a lattice on which no count lies": "contract/test_draws_are_charged.py::test_whatever_is_released_is_on_its_lattice[synthesizer]"}),
        (rewritten("on_lattice", ("np.round(prediction * PREDICTED) / PREDICTED", "prediction")), {"predictions that lie on no lattice": "contract/test_draws_are_charged.py::test_whatever_is_released_is_on_its_lattice[synthesizer]"}),
        (given("_noise", "release_marginals", mu=half), {"the sampler is told of one table": "tables/test_marginal_release.py::test_the_sampler_is_told_of_the_whole_release"}),
        (rewritten("release_marginals", ("noise = [", "early = exact_counts(rows, marginals); noise = ["), ("exact = exact_counts(rows, marginals)", "exact = early")), {"rows before noise": "tables/test_marginal_release.py::test_noise_is_drawn_before_the_rows_are_counted"}),
        (rewritten("JointTables.count", ("map(np.add, total, found)", "map(np.add, total, map(np.add, found, total))")), {"rows of a joint table counted twice": "tables/test_marginal_release.py::test_counts_by_joint_tables_are_those_of_single_marginals[16384-False]"}),
        (returning("misfit_sensitivity", half), {"one of two counts in a misfit": "tables/test_marginal_release.py::test_the_worst_predictions_attain_the_sensitivity_of_misfits[4]"}),
        (returning("choice_sensitivity", half), {
            "a score moves and others stay": "tables/test_choices.py::test_no_neighbours_exceed_what_is_charged[5.0-1]"}),
        (returning("largest_change", 2.0), {
            "a triple charged as a pair": "tables/test_marginal_release.py::test_the_worst_triple_attains_its_sensitivity"}),
        (rewritten("release_choices", ("draw.next(stream)", "int(np.argmax(np.where(draw.is_open, scores, -math.inf)))")), {
            "choices without noise": "tables/test_choices.py::test_choices_have_the_law_of_the_exponential_mechanism[1-3.0]"}),
        (given("_Draw.__init__", rate=twice), {
            "choices with half of their noise": "tables/test_choices.py::test_choices_have_the_law_of_the_exponential_mechanism[2-6.0]"}),
        (rewritten("_Draw.__init__", ("(shift * log2 - exponent).exp()", "decimal.Decimal(math.exp(float(shift * log2 - exponent)))")), {
            "weights in floating point": "tables/test_choices.py::test_weights_are_exact_to_the_last_bit"}),
        (rewritten("_event_for", ("mu / math.sqrt(steps)", "mu")), {
            "one of several choices": "tables/test_fitting.py::test_a_plan_costs_what_was_asked_and_no_less[SingleFitTarget-1.0-1e-05-known]"}),
        (rewritten("ChoiceEvent.mu", ("CHOICE_MU * ", "0.64 * ")), {
            "a choice charged by its variance": "tables/test_choices.py::test_the_cost_is_that_of_the_worst_test_of_any_range"}),
        (rewritten("TableFit._chosen", ("sorted(places)", "sorted(np.argsort([-np.abs(rows.counts([m])[0] - p).sum() for m, p in zip(marginals, predictions)])[:len(places)])")), {
            "triples by true misfits": "contract/test_replay.py::test_a_fit_follows_from_its_releases[synthesizer]"}),
        (given("misfit_sensitivity", marginals=first_alone), {"one of several misfits": "tables/test_marginal_release.py::test_the_worst_predictions_attain_the_sensitivity_of_misfits[4]"}),
        (returning("TablePlan.marginal_sigmas", for_one_count), {"one of two counts in a table": "tables/test_fitting.py::test_marginals_of_a_release_cost_its_share_together[tree-weights1]"}),
        (rewritten("TablePlan.marginal_sigmas", ("weights.sum()", "weights.max()")), {"the whole share for each table": "tables/test_fitting.py::test_marginals_of_a_release_cost_its_share_together[pairs-weights1]"}),
        (given("TablePlan.__init__", "plan_tables", shares=with_more_for_pairs), {"shares of 1.2": "contract/test_draws_are_charged.py::test_every_noise_of_a_table_is_charged[synthesizer]"}),
        (rewritten("find_cells", ("refined(grids[c], *combined([*known[c], noisy]))", "refined(grids[c], noisy.marginal.counts(coded._rows.value[0]), np.zeros(noisy.marginal.n_cells))")), {"cells split by true counts": "contract/test_replay.py::test_a_fit_follows_from_its_releases[synthesizer]"}),
        (rewritten("find_cells", ("rounding_of(noisy.counts, noisy.sigma)", "rounding_of(of_round(0)[wide.index(c)].counts(coded._rows.value[0]), 0.0)")), {"round values by true counts": "contract/test_replay.py::test_a_fit_follows_from_its_releases[synthesizer]"}),
        (rewritten("find_cells", ("np.ones(len(wide)), name)", "np.ones(len(wide)), 'roundness' if level else name)")), {"rounds of cells under one charge": "contract/test_draws_are_charged.py::test_every_noise_of_a_table_is_charged[synthesizer]"}),
        (rewritten("TableFit._model", ("coarsen(noisy,", "coarsen(replace(noisy, counts=noisy.marginal.counts(found.rows.value[0])),")), {"bins by true counts": "contract/test_replay.py::test_a_fit_follows_from_its_releases[synthesizer]"}),
        (returning("release_misfits", true_misfits, "TableFit._release_tree"), {"a tree by true strengths": "contract/test_replay.py::test_a_fit_follows_from_its_releases[synthesizer]"}),
        (returning("release_misfits", true_misfits, "TableFit._release_pairs"), {"pairs by true misfits": "contract/test_replay.py::test_a_fit_follows_from_its_releases[synthesizer]"}),
        (given("TableFit._candidates", "TableFit._release_pairs", predictions=true_counts), {"predictions from private rows": "contract/test_replay.py::test_a_fit_follows_from_its_releases[synthesizer]"}),
        (rewritten("mean_field_langevin", ("isinstance(plan.event, NonPrivateEvent)", "True")), {"fit of particles to private rows": "contract/test_replay.py::test_a_fit_follows_from_its_releases[paths, mfld]"}),
        (rewritten("DPTableSynthesizer._read", ("rules.read, name", "lambda given: vars(self).setdefault('_values', rules.read(given)), name")), {"rows kept for later": "contract/test_replay.py::test_a_fit_follows_from_its_releases[synthesizer]"}),
    ],
    24: [
        (rewritten("withholding", ("with apart():", "if True:")), {"seeds of trials by their index": "core/privacy/test_journal.py::test_seeds_of_trials_do_not_follow_from_the_one_in_the_file"}),
        (rewritten("forgotten", ("with withholding():", "if True:")), {"trials in a file": "core/privacy/test_journal.py::test_trials_of_a_search_are_in_no_file"}),
        (rewritten("_draw_candidate", ("secret.random_bits(128)", "secret.random_bits(31)")), {"a short seed for a candidate": "search/test_private_search.py::test_parameters_do_not_show_the_index_of_their_trial"}),
        (rewritten("_draw_candidate", ("deepcopy(distributions)", "distributions")), {"laws that count their draws": "search/test_private_search.py::test_a_candidate_has_one_law_at_every_index[counting]"}),
        (rewritten("PrivateEstimatorMixin._restate", ("self.privacy_spent_ = spent", "pass")), {"the statement of a trial": "search/test_private_search_winners.py::test_everything_that_the_winner_holds_states_the_search[classifier]"}),
        (rewritten("PrivateEstimatorMixin._restate", ("self._stated_in", "()")), {"the budget of a trial, in a sketch": "search/test_private_search_winners.py::test_everything_that_the_winner_holds_states_the_search[flow]"}),
        (returning("check_statement", of_a_costly_search, "SketchRecord._check_statement"), {"sketches that tell more than a trial": "search/test_private_search_winners.py::test_a_statement_of_a_search_that_its_noise_does_not_bear_is_refused"}),
        (returning("check_statement", of_a_costly_search, "TableRecord._check_statement"), {"tables that tell more than a trial": "search/test_private_search_winners.py::test_a_statement_of_a_search_that_its_noise_does_not_bear_is_refused"}),
        (skipped("Ledger.forget"), {"a ledger remembered for each trial": "search/test_private_search_winners.py::test_no_registry_of_the_process_counts_trials"}),
    ],
    25: [
        (rewritten("charge_fit", (" and event.is_private and", " and")), {"values without noise in a ledger": "core/privacy/test_journal.py::test_without_noise_nothing_is_written"}),
        (rewritten("Sliced.release", ("elif context.groups is None:", "elif True:")), {"directions by the rows of persons": "distance/test_wasserstein_distance.py::test_the_number_of_directions_depends_on_persons_and_not_on_their_rows"}),
        (rewritten("_release_units", ("np.where(shown, found, 0.0)", "np.abs(rows.value).max(axis=0)")), {"sizes of features that are true": "contract/test_replay.py::test_a_fit_follows_from_its_releases[sketch, few rows, units]"}),
        (rewritten("release_frontier", ("_radii(summed(_sizes, plan.sizes), plan.sizes.sigma, n)", "_radii(_sizes(*errors_and_moves(*scores, targets)).sum(0), 0.0, n)")), {"lengths of true errors": "contract/test_replay.py::test_a_fit_follows_from_its_releases[regressor, barycenter]"}),
        (rewritten("release_rounds", ("within = tables.range_of_interest(limits)", "within = (outputs.mean(0), 2 * outputs.std(0))")), {"predictions measured where they are": "contract/test_replay.py::test_a_fit_follows_from_its_releases[regressor, barycenter]"}),
        (rewritten("FairGradients.release", ("plan.noise is None", "True")), {"losses of a private fit": "fair/test_loss_curve.py::test_losses_are_told_where_nothing_is_protected_alone[sketch]"}),
        (rewritten("DPSGD.release", ("plan.noise is None", "True")), {"losses of a private autoencoder": "fair/test_loss_curve.py::test_losses_are_told_where_nothing_is_protected_alone[codes]"}),
        (rewritten("release_target_bins", ("width = first", "inner = np.quantile(targets, [0.2, 0.4, 0.6, 0.8]) - tables.centres[0]; width = first")), {"bins of true targets": "contract/test_replay.py::test_a_fit_follows_from_its_releases[regressor, odds]"}),
        (rewritten("release_spread", ("error = noise", "mean = targets.mean(axis=0); error = noise")), {"the mean of true targets, before training": "contract/test_replay.py::test_a_fit_follows_from_its_releases[regressor, barycenter]"}),
        (rewritten("release_recalibration", ("error = 2.0", "target = targets.mean(axis=0); error = 2.0")), {"the mean of true targets": "contract/test_replay.py::test_a_fit_follows_from_its_releases[regressor, barycenter]"}),
        (rewritten("FairPrivatePostProcessor.fit", ("ScoreLists(shares, ", "ScoreLists(shares + (hidden is not None) * targets.mean(), ")), {"lists by true classes": "contract/test_replay.py::test_a_fit_follows_from_its_releases[post-processor, group by its estimator]"}),
        (rewritten("ScorePlan._standardised", ("mean.clip(-1.0, 1.0)", "rows.mean(0)")), {"means of features": "fair/test_scores.py::test_a_training_follows_from_its_releases"}),
        (rewritten("release_histograms", ("pass_gate(release)", "counts + 0 * pass_gate(release)")), {"bounds from exact counts": "contract/test_replay.py::test_a_fit_follows_from_its_releases[flow]"}),
        (rewritten("_lloyd_step", ("least = max(1.0", "counts = np.bincount(_nearest(rows, centers), minlength=len(centers)).astype(float); least = max(1.0")), {"true counts of clusters": "contract/test_replay.py::test_a_fit_follows_from_its_releases[paths, mfld, kmeans]"}),
        (given("mean_field_langevin", radius=mean_norm), {"particles within the mean private norm": "contract/test_replay.py::test_a_fit_follows_from_its_releases[paths, mfld]"}),
        (given("mean_field_langevin", start=moved_by_true_means), {"particles start at true means": "contract/test_replay.py::test_a_fit_follows_from_its_releases[paths, mfld]"}),
        (given("mean_field_langevin", smoothing=times_the_spread_of_rows), {"gradients averaged as far as rows lie": "contract/test_replay.py::test_a_fit_follows_from_its_releases[paths, mfld, batches]"}),
        (returning("_noisy_count", true_count), {"a threshold by true labels": "contract/test_replay.py::test_a_fit_follows_from_its_releases[classifier, threshold]"}),
        (rewritten("FairGradients.release", ("_LARGEST_RATE)", "_LARGEST_RATE) / float(records.targets.double().std())")), {"a learning rate by true targets": "contract/test_replay.py::test_a_fit_follows_from_its_releases[regressor, ranks]"}),
        (rewritten("DPTableSynthesizer.fit", ("rules.resolved(model)", "rules.resolved(model).learned(lambda n: rows.value)")), {"a table of what private columns imply": "contract/test_replay.py::test_a_fit_follows_from_its_releases[synthesizer, rules]"}),
        (rewritten("RowMap.read", ("return", "any(wrong.any() for wrong in self.faults(self.schema.read(table)).values()) and __import__('warnings').warn('broken'); return")), {"a warning of rows that break rules": "tables/test_rules.py::test_rows_that_break_rules_are_not_told_of"}),
        (rewritten("PrivateWassersteinGradient._steps", ("if plan.noise is None", "if plan.noise is not None")), {"losses of a private training": "core/nets/test_wasserstein_gradient.py::test_a_gradient_has_the_noise_of_its_event[both]"}),
        (rewritten("TransportedRows.release", ("limits = _RANGE *", "limits = np.abs(rows).max() *")), {"slices as wide as the rows of a domain": "contract/test_replay.py::test_a_fit_follows_from_its_releases[adapter]"}),
        (rewritten("TransportedRows.release", ("_LARGEST_RATE", "_LARGEST_RATE * float(records.targets.double().std())")), {"steps as long as labels vary": "contract/test_replay.py::test_a_fit_follows_from_its_releases[adapter]"}),
        (returning("private_steps", by_the_norms_of_rows), {"steps by the largest row": "contract/test_replay.py::test_a_fit_follows_from_its_releases[autoencoder]"}),
        (rewritten("Gradient.release", ("OutputUnits.of_ball(bounds)", "OutputUnits.of_ball(type(bounds)(bounds.center, bounds.scale, np.abs(bounds.to_ball(rows)).max()))")), {"outputs as wide as the rows": "contract/test_replay.py::test_a_fit_follows_from_its_releases[generator, gradient]"}),
        (returning("noisy_batches", times_the_largest_value), {"projected rows up to the largest": "contract/test_replay.py::test_a_fit_follows_from_its_releases[flow, resample]"}),
        (rewritten("SlicedSketch._open", ("projection_half_widths(self.bounds_, plan.directions)", "np.abs(self.bounds_.to_ball(rows.value[0]) @ plan.directions.T).max(axis=0)")), {"ranges of directions by true projections": "contract/test_replay.py::test_a_fit_follows_from_its_releases[sketch]"}),
        (rewritten("_release_features", ("in tables", "in rows.sum(sizes.count)[0]")), {"true magnitudes": "contract/test_replay.py::test_a_fit_follows_from_its_releases[flow, automatic]"}),
        (rewritten("release_ranges", ("knots = one.knots(*spans[j])", "knots = one.knots(*spans[j]); knots[1] += 1e-12 * rows.sum(lambda batch: ((batch > 0).sum(axis=0),))[0][j]")), {"a scale by true counts": "contract/test_replay.py::test_a_fit_follows_from_its_releases[encoder, private scale]"}),
        (rewritten("release_private_bounds", ("norms.end(max(cell, 1))", "norms.end(int(np.flatnonzero(rows.sum(norms.count)[0][0])[-1]))")), {"a radius of true norms": "contract/test_replay.py::test_a_fit_follows_from_its_releases[sketch, norms of many features]"}),
        (given("NoisyAccumulator.add", rows=warned_of), {"a warning of rows that are cut": "contract/test_replay.py::test_a_fit_follows_from_its_releases[sketch, box]"}),
        (rewritten("_release_features", ("found[j] = one if seen.size else found[j]", "found[j] = replace(one, table=1.0 * rows.sum(histograms.count)[0][j])")), {"ranges of true counts": "contract/test_replay.py::test_a_fit_follows_from_its_releases[encoder]"}),
        (returning("_noisy", the_exact_score), {"trials compared by exact scores": "contract/test_replay.py::test_a_fit_follows_from_its_releases[search]"}),
        (rewritten("dtype_name", ("repr(kind.__name__)", "repr(name)")), {"what a data type fills with, in an error": "tables/test_table_schema.py::test_no_message_shows_the_categories_or_the_filling_of_a_type[sparse int]"}),
        (rewritten("_refusal", ("text.startswith(phrase) or (replacement and phrase in text)", "phrase in text")), {"a text that holds a known phrase, in an error": "core/_utils/test_validation.py::test_a_value_that_holds_a_known_phrase_is_not_quoted_either[Found array with]"}),
        (given("mean_field_langevin", plan=with_noises_exchanged), {"phases with each other's noise": "contract/test_draws_are_charged.py::test_every_noise_is_charged_as_often_as_it_is_drawn[paths, mfld, rough]"}),
    ],
    26: [
        (rewritten("leaves", ("yield from leaves(part, composite, f'{prefix}{name}__')", "yield prefix, part")), {"within another composite": "core/privacy/test_check_pipeline.py::test_a_step_that_learns_without_noise_is_refused_and_warned_of[before-a nested PCA]"}),
        (rewritten("_is_declared", ("getattr(part, name) in allowed", "getattr(part, name) in allowed or name == 'handle_unknown'")), {"an encoder that names unknown values": "core/privacy/test_check_pipeline.py::test_what_is_not_declared_is_learned[changed1]"}),
        (returning("leaks", (), "warn_of_composition"), {"a fit that says nothing": "core/privacy/test_check_pipeline.py::test_a_step_that_learns_without_noise_is_refused_and_warned_of[before-StandardScaler]"}),
        (returning("_statements", (), "warn_of_composition"), {"a private step in a column transformer": "core/privacy/test_check_pipeline.py::test_private_steps_share_a_budget_or_are_told_their_sum[columns, then a step]"}),
        (rewritten("leaks", ("getattr(composite, 'memory', None) is not None", "False")), {"a memory that keeps rows in files": "core/privacy/test_check_pipeline.py::test_a_memory_would_keep_rows_in_files[inside]"}),
        (given("_makes_numbers", numbers=True), {"a step that quotes a text among numbers": "core/privacy/test_check_pipeline.py::test_no_accepted_step_quotes_a_bad_row"}),
        (rewritten("is_shared", (" and budget is budgets[0]", "")), {"two budgets taken for one": "core/privacy/test_check_pipeline.py::test_private_steps_share_a_budget_or_are_told_their_sum[steps]"}),
    ],
    27: [
        (instead("_placed", as_many_places_as_records), {"a batch has as many places as records": "core/nets/test_steps.py::test_batches_are_fresh_and_as_large_as_is_charged[autoencoder]"}),
        (rewritten("_placed", ("_random_order(n_places, stream)", "np.arange(n_places)")), {"a record moves the places of others": "core/privacy/test_subsampling.py::test_places_are_uniform_whoever_else_is_drawn"}),
        (rewritten("LocalPenalty.of_release", ("projections[:, own]", "tables.projections(values[own])")), {"pulls rounded by the size of a private cell": "fair/test_fair_sums.py::test_a_record_that_changes_its_cell_moves_no_bit_of_another"}),
        (rewritten("_add", ("usable & (records >= 0)", "usable")), {"a vacant place adds something": "contract/test_places.py::test_vacant_places_add_exactly_nothing"}),
        (rewritten("pulled_back_sum", ("-len(places) % _WHOLE", "0")), {"a product of as many rows as records": "contract/test_places.py::test_a_record_that_joins_moves_none_that_is_on_a_kink[predictor-dtype0]"}),
        (rewritten("_check_equal", ("torch.equal(alone, with_others)", "torch.allclose(alone, with_others, atol=0.0001)")), {"a network that mixes records a little": "core/nets/test_private_modules.py::test_refused[layer5-depends on the other records]"}),
        (rewritten("answers", ("found = found if again is None else again", "pass")), {"rounded by how many rows a classifier refuses": "contract/test_strangers.py::test_a_refused_row_changes_no_other_answer"}),
        (rewritten("Norms._cells", ("column - center", "column - column.mean()")), {"norms about the mean of a batch": "core/release/test_bounds.py::test_counts_are_sums_over_any_partition[norms]"}),
        (rewritten("run_schema", ("read_header(args.data, form)", "read_guessable(args.data, form)")), {"a schema that reads no value, of inferred types": "cli/test_private_schema.py::test_no_row_has_a_part_in_what_comes_out[stated]"}),
        (rewritten("_read_texts", ("'strict' if rows else 'replace'", "'strict'")), {"a row beyond the header that is decoded": "cli/test_private_schema.py::test_no_row_has_a_part_in_what_comes_out[stated]"}),
        (given("_read_columns", reader=without_empty_lines), {"empty lines passed over": "cli/test_table_files.py::test_an_empty_line_of_one_column_is_a_record"}),
        (rewritten("TableSchema.from_dtypes", ("column_from_dtype(table, name)", "(lambda plain, known: plain.replace(categories=known[0]) if known else plain)(column_from_dtype(table, name), table.categories(name))")), {"categories of a data type taken as public": "tables/test_table_schema.py::test_categories_that_a_data_type_lists_are_unknown[enum of polars]"}),
        (rewritten("NumericColumn.read", ("list(map(as_integer if self.integer else as_float, found))", "np.clip(np.array(found), -(2**62), 2**62)")), {"objects as numbers of one type": "tables/test_table_columns.py::test_what_a_value_becomes[one half beside large integers]"}),
        (rewritten("_CodedColumn.of_series", ("np.bincount(found + 1, minlength=len(known) + 1)[1:] > 0", "np.ones(len(known), dtype=bool)")), {"categories of a data type that no row has": "tables/test_table_columns.py::test_categories_that_no_row_has_are_not_read[no list]"}),
        (rewritten("DatetimeColumn.seconds", ("np.clip(seconds.astype('datetime64[s]'), *_KNOWN_CLOCKS)", "seconds.astype('datetime64[s]')")), {"days of a zone beyond 9999": "tables/test_table_columns.py::test_no_day_of_a_zone_is_too_far[Asia/Tokyo]"}),
        (returning("constants_of", (), "RowMap"), {"columns with one value paid for": "tables/test_table_synthesizer_privacy.py::test_nothing_is_spent_on_columns_with_one_value"}),
        (rewritten("NumericColumn.read", ("self._number(value)", "(self if len(distinct) % 2 else self.replace(written='1,234.50 EUR'))._number(value)")), {"a decimal mark by all texts": "tables/test_one_row_one_code.py::test_changing_a_row_changes_its_code_alone[pandas-amounts as text]"}),
        (rewritten("numbers_of", (".clip(-LARGEST_NUMBER, LARGEST_NUMBER)", "")), {"a warning of large numbers": "tables/test_rules.py::test_no_private_value_is_too_large[doubles]"}),
        (rewritten("LessEqual.encode", ("np.maximum(", "np.maximum(np.nanmax(excess) - ")), {"differences from the largest": "tables/test_rules.py::test_a_row_is_mapped_by_itself_and_obeys_rules_afterwards"}),
        (rewritten("CategoricalColumn.to_codes", ("np.array(places, dtype=np.int64)[column.distinct[0]]", "np.where((codes := column.distinct[0]) < 0, -1, codes % len(self.levels))")), {"categories by the first that occurs": "tables/test_one_row_one_code.py::test_changing_a_row_changes_its_code_alone[arrow-String]"}),
        (returning("TickColumn.to_unit", since_the_earliest), {"times by the earliest": "tables/test_one_row_one_code.py::test_changing_a_row_changes_its_code_alone[polars-Datetime(us, None)]"}),
    ],
    28: [
        (rewritten("_units", ("np.trunc", "np.round")), {"entries of sums rounded to the nearest unit": "fair/test_barycenter.py::test_rounding_takes_no_vector_beyond_its_radius"}),
        (rewritten("counting_device", ("where is not None", "False")), {"products that a device rounds": "core/release/test_neighbours.py::test_a_device_that_rounds_products_is_refused_before_any_charge[torch]"}),
        (rewritten("release_moments", ("some.T @ some", "2 * (some.T @ some)")), {"products counted twice": "core/release/test_moments.py::test_no_record_moves_the_moments_by_more_than_the_sensitivity[across the ball]"}),
        (rewritten("plan_score_tables", ("calibrate_lattice(mu, moved,", "calibrate_lattice(mu, moved / math.sqrt(2.0),")), {"scores that leave a bin and enter another": "fair/test_bayes_rule.py::test_a_replaced_record_moves_the_table_by_no_more_than_the_sensitivity[blind]"}),
        (rewritten("release_score_tables", ("codes=tables, n_classes=lists.n_tables)", "codes=tables, n_classes=lists.n_tables) * 2")), {"a table of scores counted twice": "fair/test_bayes_rule.py::test_a_replaced_record_moves_the_table_by_no_more_than_the_sensitivity[aware]"}),
        (rewritten("plan_scores", ("2.0 * math.sqrt(d)", "math.sqrt(2.0 * d)")), {"moments of features": "fair/test_scores.py::test_no_neighbour_moves_a_release_further_than_its_sensitivity[logistic]"}),
        (rewritten("plan_scores", ("calibrate_rounded(of_step, 2.0 * clip,", "calibrate_rounded(of_step, clip,"), ), {"gradients of scores": "fair/test_scores.py::test_no_neighbour_moves_a_release_further_than_its_sensitivity[logistic]"}),
        (rewritten("Histograms.count", ("counts += np.bincount(cells.ravel(), minlength=n_cells + 1)", "counts += sum(np.bincount(part.ravel(), minlength=n_cells + 1) for part in (cells, cells // 2))")), {"a row in two cells of a histogram": "contract/test_replaced_records.py::test_no_release_moves_further_than_its_sensitivity[bounds of features]"}),
        (rewritten("_ExactProjections.units", ("self.limited", "False")), {"rows of more energy counted where they are": "core/release/test_strategy.py::test_a_row_of_more_energy_is_counted_in_the_middle[None]"}),
        (rewritten("_largest_change", ("+ dual * limit", "")), {"the price of a limit forgotten": "core/release/test_strategy.py::test_no_bins_of_limited_energy_move_the_statistic_further"}),
        (rewritten("Strategy._least_squares", ("centres - 0.5", "centres")), {"records taken to be in the middle of their bins": "core/release/test_strategy.py::test_no_bins_of_limited_energy_move_the_statistic_further"}),
    ],
    29: [
        (returning("reserve", with_all_caps), {"the caps of a budget without a plan": "core/privacy/test_planned.py::test_the_plan_and_all_that_is_admitted_beside_it_cost_no_more_than_the_budget[search]"}),
        (rewritten("Terms.admit", ("within and made <= Counter((planned.event for planned in self.planned))", "within")), {"a planned fit made twice": "core/privacy/test_planned.py::test_each_planned_fit_is_made_once_by_whichever_budget_asks_first"}),
        (rewritten("PlannedFit.covers", ("mu <= self.mu and", "")), {"less noise than was planned": "core/privacy/test_planned.py::test_only_what_costs_no_more_than_was_planned_is_free[event0-dearer0-nearly0]"}),
        (rewritten("PlannedFit.covers", ("and (others == self.others)", "")), {"other batches than were planned": "core/privacy/test_planned.py::test_only_what_costs_no_more_than_was_planned_is_free[event2-dearer2-nearly2]"}),
    ],
    30: [
        (rewritten("DaskSource.sum", ("parts[k:k + _AT_ONCE]", "parts[k:k + _AT_ONCE + 1]")), {"partitions counted twice": "core/sources/test_same_release.py::test_every_form_of_the_same_rows_gives_the_same_release[sketch, classes-dask_many]"}),
        (rewritten("DaskSource.sum", ("parts[k:k + _AT_ONCE]", "parts[k:k + _AT_ONCE - 1]")), {"partitions left out": "core/sources/test_same_release.py::test_every_form_of_the_same_rows_gives_the_same_release[sketch, classes-dask_many]"}),
        (rewritten("ExactCounts.__add__", ("a + b", "a + b + b")), {"a batch added twice": "core/sources/test_exact_counts.py::test_adding_is_exact_in_any_order"}),
        (rewritten("ExactCounts.total", ("own.update(other) if isinstance(own, Counter) else np.add(own, other, out=own)", "None")), {"a batch left out": "core/sources/test_same_release.py::test_every_form_of_the_same_rows_gives_the_same_release[sketch, classes-parquet]"}),
        (rewritten("DatasetSource.of_paths", ("len(set(map(realpath, paths))) < len(paths)", "False")), {"a file counted twice": "core/sources/test_refusals.py::test_paths"}),
        (rewritten("SourceRows.sum", ("found._n_rows != self.n_rows", "False")), {"a pass that read other rows": "core/sources/test_refusals.py::test_rows_that_change_between_passes[fewer rows-sketch]"}),
        (returning("SketchCounter.__call__", with_noise_of_its_own), {"noise for each batch": "core/sources/test_same_release.py::test_every_form_of_the_same_rows_gives_the_same_release[sketch, classes-one_row_each]"}),
        (rewritten("SlicedSketch._release", ("self._accumulator.add(rows, parts)", "self._accumulator.add(rows, parts) or vars(self).update(_kept=rows.sum(self._accumulator._counter))")), {"counts kept on the estimator": "contract/test_replay.py::test_a_fit_of_batches_follows_from_its_releases[sketch]"}),
        (as_any_object("ExactCounts.__reduce_ex__"), {"counts pickled by accident": "core/sources/test_exact_counts.py::test_counts_are_saved_by_no_accident[dumps]"}),
        (rewritten("ExactCounts.__repr__", ("'ExactCounts(secret)'", "f'ExactCounts({self._tables})'")), {"counts shown": "core/sources/test_exact_counts.py::test_counts_are_not_shown"}),
        (rewritten("quietly", ("_UNKNOWN.format(type(error).__name__)", "str(error)")), {"errors of readers": "core/sources/test_refusals.py::test_errors_of_readers_quote_nothing[a pass-sketch]"}),
        (rewritten("quietly", ("except BaseException", "except Exception")), {"panics of readers": "core/sources/test_refusals.py::test_errors_of_readers_quote_nothing[a panic of a pass-sketch]"}),
        (rewritten("DatasetSource.of_paths", ("quietly(lambda: dataset.dataset(paths, format=options))", "dataset.dataset(paths, format=options)")), {"errors of files": "core/sources/test_refusals.py::test_files_that_cannot_be_read[sketch]"}),
        (rewritten("_Count.__call__", ("_UNKNOWN.format(type(error).__name__)", "str(error)")), {"errors of batches": "core/sources/test_refusals.py::test_errors_of_readers_quote_nothing[rows of another library-sketch]"}),
        (rewritten("_Count.__call__", ("type(batch).__module__.partition('.')[0] in _LIBRARIES", "True")), {"errors of other libraries": "core/sources/test_refusals.py::test_errors_of_readers_quote_nothing[rows that have a length-sketch]"}),
        (charged_late("SlicedSketch.fit"), {"charged after all passes": "core/sources/test_charges.py::test_one_charge_after_the_first_pass_and_before_noise[sketch]"}),
    ],
}
# fmt: on
MUTANTS = tuple(
    Mutant(defect, name, inject, f"tests/{test}")
    for defect, injections in _INJECTIONS.items()
    for inject, tests in injections
    for name, test in tests.items()
)
FILES = tuple(dict.fromkeys(mutant.caught_by.split("::")[0] for mutant in MUTANTS))


def results(
    file: str, n_healthy: int | None = None
) -> tuple[dict[str, Outcome], list[tuple[Mutant, Outcome]]]:
    """Inject all mutants that tests of one file catch.

    Parameters
    ----------
    file : str
        One of `FILES`.
    n_healthy : int, optional
        How many of the tests are run without a mutant too; by default all.

    Returns
    -------
    healthy : dict of str to Outcome
        What named tests come to without a mutant.
    hurt : list of (Mutant, Outcome)
        What they come to with each.
    """
    own = [mutant for mutant in MUTANTS if mutant.caught_by.startswith(f"{file}::")]
    healthy, hurt = run_tests([(mutant.caught_by, mutant.inject) for mutant in own], n_healthy)
    return healthy, list(zip(own, hurt, strict=True))


_COLUMNS = ("mutant", "injected into", "what it writes", "caught by", "what the test says")


def _write_table(path: str) -> None:
    found = []
    for file in FILES:
        healthy, hurt = results(file)
        found += [(mutant, healthy[mutant.caught_by], outcome) for mutant, outcome in hurt]
    found.sort(key=lambda result: MUTANTS.index(result[0]))
    with open(path, "w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(_COLUMNS)
        for mutant, healthy, hurt in found:
            verdict = hurt.says if healthy.healthy and hurt.caught else "NOT CAUGHT"
            writer.writerow(
                (
                    f"{mutant.defect}. {DEFECTS[mutant.defect]}: {mutant.name}",
                    "; ".join(f"``{place}``" for place in mutant.inject.where.split("; ")),
                    " ".join(mutant.inject.says.split()),
                    f"``{mutant.caught_by.removeprefix('tests/')}``",
                    f"``{verdict}``",
                )
            )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--csv", required=True, help="where to write the table")
    _write_table(parser.parse_args().csv)
