"""Defects of privacy that somebody could write in `skdpot.privacy`."""
# ruff: noqa: E501

import math
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from unittest.mock import ANY

import numpy as np
from sklearn.model_selection import KFold, StratifiedKFold

from skdpot.privacy.accounting import compose
from skdpot.privacy.events import Step
from skdpot.privacy.gdp import gdp_delta
from skdpot.privacy.sampling import PoissonClippedSumStep
from skdpot.privacy.searches import _BECAUSE
from skdpot.privacy.targets import _certain_leak_units
from tests.contract.defects.changes import _ONE_STEP
from tests.contract.injection import (
    Injections,
    all_of,
    charged_late,
    given,
    half,
    instead,
    reading,
    replaced,
    returning,
    skipped,
)


def one_more(threshold):
    return threshold + 1


def without_infinite_losses(losses):
    return replace(losses, infinity_mass=0.0)


def without_a_cap_of_leaks(terms):
    return replace(terms, leak_cap=math.inf)


def cut_from_one_permutation(n, size, n_steps, stream):
    order, turns = stream.generator().permutation(n), n // size
    return (order[k % turns * size :][:size] for k in range(n_steps))


def mu_off_the_lattice(self):
    return self.sensitivity / self.sigma


def plus_exact_values(total, values):
    return total + values


def nearly_normal_steps(steps, self):
    for _, count in steps:
        yield Step(self.rate * math.sqrt(math.expm1(self.mu**2))), count


def steps_on_poisson_samples(steps, self):
    for _, count in steps:
        yield PoissonClippedSumStep(self.mu, self.rate), count


def of_one_column(event):
    return replace(event, n_columns=1)


def with_all_caps(reserved, target):
    return reserved[0], (target.mu_squared_units, target.leak_units)


def smallest_share(self):
    if self.sampling_rate is not None:
        return self.sampling_rate
    return min(b / n for b, n in zip(self.batch_sizes, self.group_sizes, strict=True))


def mu_by_variance(self):
    return math.sqrt(self.n_steps) * 0.64 * self.sensitivity / self.sigma


def at_the_nodes(holds, mu, leak, epsilon, profile):
    gaussian = gdp_delta(epsilon, mu)
    return holds or bool(np.all((gaussian - profile) + leak * (1.0 - gaussian) >= 0.0))


def no_more_than_planned(mu, self):
    return min(mu, self.mu)


def as_planned(others, self):
    return self.others


def with_any_last_charge(seen):
    return replace(seen, last=ANY)


@contextmanager
def without_synchronising(opened, kind):
    with opened as connection:
        for statement in ("ROLLBACK", "PRAGMA synchronous = OFF", f"BEGIN {kind}"):
            connection.execute(statement)
        yield connection


def as_was_planned(statement, self):
    return self.plan.statement


def without_a_tail(losses, parts):
    return replace(losses, infinity_mass=sum(part.infinity_mass * n for part, n in parts))


def without_leaks_of_samples(cost, event):
    return replace(cost, leak_units=_certain_leak_units(compose(event)))


def by_place(splitter):
    is_stratified = isinstance(splitter, StratifiedKFold)
    return KFold(splitter.n_splits) if is_stratified else splitter


def of_no_parameter(faults):
    return (fault for fault in faults if not fault.endswith(tuple(_BECAUSE.values())))


def as_if_no_row_repeats(tried):
    return (*tried[:2], False)


def by_the_root(group_size):
    return math.isqrt(group_size)


def of_gaussian_noise(worst, rho):
    return replace(worst, mu=math.sqrt(2.0 * rho))


def of_order_one(cost, a, y):
    return np.where(a < 0.0, cost * (y - a) / (y + a), cost)


def where_a_half_square_is_rho(found):
    rho = found[1] * math.tanh(found[1] / 2.0)
    return found[0], math.sqrt(2.0 * rho)


def a_step_less(count, self):
    return count - self.lattice


def in_the_same_call():
    return nullcontext()


def but_for_the_statement(restate):
    def restated(self, spent):
        before = getattr(self, "privacy_spent_", None)
        restate(self, spent)
        if before is not None:
            self.privacy_spent_ = before

    return restated


def undivided(estimator, composite, prefix):
    return iter([] if composite else [(prefix, estimator)])


def but_for_unknown_values(declared):
    return {
        kind: {name: allowed for name, allowed in needed.items() if name != "handle_unknown"}
        for kind, needed in declared.items()
    }


def but_for_memory(leaks):
    return tuple(text for text in leaks if "`memory`" not in text)


def all_are_budgets(budgets):
    return all(budget is not None for budget in budgets)


def of_no_planned_fit(totals):
    return replace(totals, planned=())


# fmt: off
INJECTIONS: Injections = {
    1: [
        (skipped("check_shares"), {"shares on a coarse lattice": "distance/test_secure_sum.py::test_shares_are_refused_that_no_proof_covers"}),
        (given("discrete_gaussian", s=half), {"the sampler of lattice noise": "core/privacy/test_noise.py::test_a_million_draws_have_the_exact_law_and_are_independent[10.0]"}),
        (given("gaussian_noise", sigma=half), {"the sampler of float noise": "core/privacy/test_noise.py::test_float_noise"}),
    ],
    3: [
        (given("_read_charges", seen=with_any_last_charge), {"a charge that another machine replaced": "contract/test_ledger_faults.py::test_a_charge_that_a_machine_without_our_locks_replaced_is_missed"}),
        (skipped("Journal.drop", within="Journal.keep"), {"a release that is not kept, after others that are": "contract/test_ledger_faults.py::test_a_disk_that_goes_bad_after_the_charge_costs_no_second_one[keep-full]"}),
        (skipped("Ledger.keep"), {"a release that nobody keeps": "core/privacy/test_journal.py::test_a_failure_at_every_release_is_resumed[2-FailureError]"}),
        (returning("transaction", without_synchronising), {"a release that a power cut undoes": "core/privacy/test_journal.py::test_releases_are_synchronised_before_they_pass"}),
        (skipped("Ledger._check_last"), {"a place in a resumed fit that is filled twice": "core/privacy/test_journal.py::test_two_attempts_at_once_make_one_release"}),
        (given("_Resumed.take", statement=as_was_planned), {"another fit on the charge of an interrupted one": "core/privacy/test_journal.py::test_another_fit_is_refused_and_not_charged[change0-another event]"}),
        (given("Ledger.close", last=None), {"two attempts that go on unkept": "core/privacy/test_journal.py::test_one_attempt_alone_goes_on_without_being_kept[0]"}),
        (skipped("keep_no_more", within="SlicedSketch.partial_fit"), {"a stream that is resumed": "core/privacy/test_journal.py::test_a_stream_that_goes_on_is_not_resumed[LedgerError]"}),
        (skipped("keep_no_more", within="release_mean_start"), {"times that are resumed one by one": "contract/test_resumed_fits.py::test_what_is_released_time_by_time_is_not_kept[paths, mfld, mean]"}),
        (skipped("Journal.end"), {"a fit that ended and can be resumed": "core/privacy/test_journal.py::test_a_failure_at_every_release_is_resumed[2-FailureError]"}),
        (_ONE_STEP, {
            "a batch a step": "contract/test_draws_are_charged.py::test_every_noise_is_charged_as_often_as_it_is_drawn[flow, resample]",
            "a batch a step, by audit": "contract/test_claims_by_audit.py::test_no_audit_proves_more_than_the_claim[projected rows of four steps]"}),
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
    7: [
        (instead("SampledGaussianEvent.rate", smallest_share), {"the smallest share of a group": "sampling/test_autoencoder_privacy.py::test_the_event_and_the_sensitivity_are_those_of_the_batches_of_groups[a small group]"}),
        (given("_coin_sample", threshold=one_more), {"coins that land in more often": "core/privacy/test_subsampling.py::test_poisson_rate_is_never_exceeded"}),
    ],
    8: [
        (given("_of_rho", delta=0.0), {"delta of approximate zCDP": "core/privacy/test_other_libraries.py::test_concentrated_but_for_a_delta[replace_one]"}),
        (given("_of_epsilon", "_of_accountant", epsilon=half), {"a replaced record of diffprivlib counted as one that is added": "core/privacy/test_other_libraries.py::test_tools_of_diffprivlib_that_count_and_that_average_are_both_covered[1.0]"}),
        (given("SingleFitTarget.__init__", "privacy_target", delta=0.001), {"a fit is calibrated to another delta": "trajectories/test_trajectory_privacy.py::test_epsilon_of_a_sketch_is_that_of_its_noise[bounds0-1]"}),
        (given("LossDistribution.delta", self=without_infinite_losses), {"infinite losses not counted": "core/privacy/test_accounting.py::test_an_infinite_loss_counts_fully_with_and_without_a_gaussian"}),
        (reading("_upper_masses", _UNIT=1e-300), {"rounding errors of transforms not covered": "core/privacy/test_accounting.py::test_composed_masses_bound_the_exact_ones_far_into_the_tail[subset]"}),
        (returning("_composed", without_a_tail), {"losses beyond the window not counted": "core/privacy/test_accounting.py::test_losses_beyond_the_window_count_as_infinite"}),
        (reading("absent_delta", _CANCELLED=0.0), {"rounding of a profile not counted": "core/privacy/test_accounting.py::test_what_cancels_near_the_largest_loss_is_added[0.9-12.0]"}),
        (reading("clipped_sum_delta", _CANCELLED=0.0), {"rounding of a sum's profile not counted": "core/privacy/test_accounting.py::test_what_cancels_in_a_sum_of_clipped_vectors_is_added[1e-08]"}),
        (reading("SingleFitTarget.admits", ROUNDING=0.0), {"no room for other machines in SingleFitTarget.admits": "core/privacy/test_calibration.py::test_a_single_fit_pays_for_the_noise_sampler_exactly"}),
        (given("Terms.admit", self=without_a_cap_of_leaks), {"leaks of a ledger not capped": "core/privacy/test_budget.py::test_either_cap_refuses"}),
        (returning("event_cost", without_leaks_of_samples), {"leaks of sampled fits not charged": "core/privacy/test_calibration.py::test_a_thousand_sampled_fits_share_the_leaks_of_a_ledger"}),
        (returning("exact_leak", 0, "SingleFitTarget.admits"), {"error of the noise sampler not paid for": "core/privacy/test_calibration.py::test_a_single_fit_pays_for_the_noise_sampler_exactly"}),
    ],
    11: [
        (instead("fixed_size_batches", cut_from_one_permutation), {
            "batches themselves": "core/privacy/test_subsampling.py::test_successive_pairs_of_batches_are_uniform",
            "cells of training": "core/nets/test_steps.py::test_batches_are_fresh_and_as_large_as_is_charged[autoencoder, parity]",
            "fair sums by ranks": "core/nets/test_steps.py::test_batches_are_fresh_and_as_large_as_is_charged[ranks]",
            "projected rows": "sampling/test_row_releases.py::test_without_noise_the_values_are_projections_of_a_batch"}),
    ],
    12: [
        (returning("_ordered_sample", np.sort), {"members of a batch of a fixed size": "core/privacy/test_subsampling.py::test_ordered_fixed_size_batches_are_uniform[7-3]"}),
        (returning("_coin_sample", np.sort), {"members of a Poisson batch": "core/privacy/test_subsampling.py::test_ordered_poisson_batches_have_their_probabilities"}),
    ],
    16: [
        (instead("LatticeNoise.mu", mu_off_the_lattice), {"noise that is planned": "core/privacy/test_noise.py::test_exact_profile_stays_below_what_is_charged[shift0-1.0]"}),
        (given("step_mu", lattice=None), {"noise that is charged": "core/privacy/test_events.py::test_gaussian_mu_charges_the_lattice"}),
        (given("sampled_step_mu", lattice=None), {"noise of sums over Poisson samples": "core/privacy/test_noise.py::test_the_account_of_a_sampled_sum_is_that_of_its_random_rounding"}),
        (skipped("rounded_sensitivity", "sensitivity", "noise_for_sums"), {"sums rounded for free": "core/privacy/test_noise.py::test_rounded_sums_stay_within_the_sensitivity"}),
        (all_of(given("round_to_lattice", "noisy_sum", x=np.zeros_like), returning("noisy_sum", plus_exact_values)), {"sums on no lattice": "core/privacy/test_noise.py::test_a_noisy_sum_lies_on_the_lattice"}),
    ],
    18: [
        (returning("faults_of_callers", (), "charge"), {"a fit that says nothing of who divides its rows": "core/privacy/test_check_search.py::test_a_fit_warns_of_a_stratified_split_and_of_no_other[scores]"}),
        (given("_of_splitter", "_of_cv", splitter=by_place), {"folds by labels taken for folds by place": "core/privacy/test_check_search.py::test_a_search_that_moves_several_rows_is_refused_and_its_fits_warn[grid]"}),
        (returning("_of_kind", of_no_parameter), {"a bootstrap": "core/privacy/test_check_search.py::test_a_search_that_moves_several_rows_is_refused_and_its_fits_warn[bootstrap]"}),
        (returning("_tried", as_if_no_row_repeats), {"a row twice in a list of positions": "core/privacy/test_check_search.py::test_a_row_that_comes_twice_is_refused"}),
        (given("Event.grouped", group_size=1), {"rows of different times": "core/privacy/test_group_privacy.py::test_rows_of_different_parts_move_all_parts_together_by_the_root_of_their_number"}),
        (returning("_log_chain", 0.0), {"delta of a chain not added up": "core/privacy/test_group_privacy.py::test_a_group_of_what_leaks_is_bounded_or_nothing_is_said"}),
        (given("PrivacyLoss.group_epsilon", group_size=by_the_root), {"a chain of one statistic by the root": "core/privacy/test_group_privacy.py::test_epsilon_over_k_is_more_than_epsilon_for_k_rows[5-3.583]"}),
        (given("PrivacyLoss.group_epsilon", leak=0.0), {"leaks of a group forgotten": "core/privacy/test_group_privacy.py::test_a_group_of_selected_categories_is_bounded"}),
        (returning("Event.group_leak", 0.0), {"leaks of a chain forgotten": "core/privacy/test_group_privacy.py::test_a_group_of_what_leaks_is_bounded_or_nothing_is_said"}),
    ],
    19: [
        (returning("Terms.admit", True, "Ledger.admit"), {"a budget that is used up": "core/privacy/test_budget.py::test_a_refused_charge_changes_nothing"}),
    ],
    20: [
        (returning("SampledGaussianEvent._steps", nearly_normal_steps), {
            "below what is attained": "core/privacy/test_accounting.py::test_limit_for_poisson_samples_lies_below_what_is_attained",
            "batches of projected rows": "sampling/test_row_releases.py::test_cost_of_given_noise_by_another_route[sampled]"}),
        (returning("SampledGaussianEvent._steps", steps_on_poisson_samples), {"Poisson account for batches of a fixed size": "core/privacy/test_accounting.py::test_golden_values[5.0]"}),
        (returning("gdp_of_zcdp", of_gaussian_noise, "_of_rho"), {"zero-concentrated privacy as Gaussian noise": "core/privacy/test_other_libraries.py::test_zero_concentrated_counts_cost_no_more_than_is_charged[replace_one-Gaussian, 1.0]"}),
        (returning("_cost", of_order_one), {"orders of a zero-concentrated release": "core/privacy/test_concentrated.py::test_no_search_finds_a_concentrated_pair_that_costs_more[2.0]"}),
        (returning("bisected", where_a_half_square_is_rho, "zcdp_profile"), {"randomised response of zero-concentrated privacy": "core/privacy/test_concentrated.py::test_randomised_response_attains_the_charge[0.5]"}),
        (returning("_dominates", at_the_nodes), {"a bound that holds at nodes alone": "core/privacy/test_accounting.py::test_a_coarse_loss_is_dominated_between_its_nodes_too[0.1]"}),
    ],
    22: [
        (returning("ThresholdedCountsEvent.sensitivity", 1.0), {"an event in which one count moves": "core/privacy/test_selection.py::test_no_neighbours_exceed_what_is_charged[grid3]"}),
        (given("ThresholdedCountsEvent._passes", count=a_step_less), {"a tail that starts a step too far out": "core/privacy/test_selection.py::test_the_tail_is_a_close_bound[3.0-16.0]"}),
        (given("ThresholdedCountsEvent.group_leak", self=of_one_column), {"the tail of one column for all": "core/privacy/test_selection.py::test_no_neighbours_of_two_columns_exceed_what_is_charged"}),
        (given("ThresholdedCountsEvent._steps", self=of_one_column), {"one column charged for all": "core/privacy/test_selection.py::test_no_neighbours_of_two_columns_exceed_what_is_charged"}),
        (returning("PrivacyLoss.leak", 0.0, "PrivacyLoss.delta"), {"tails that delta forgets": "core/privacy/test_selection.py::test_no_neighbours_exceed_what_is_charged[grid0]"}),
        (returning("PrivacyLoss.leak", 0.0, "_certain_leak_units"), {"tails that a ledger forgets": "core/privacy/test_selection.py::test_a_budget_remembers_the_tail_and_admits_as_many_as_fit"}),
    ],
    23: [
        (instead("ChoiceEvent.mu", mu_by_variance), {
            "a choice charged by its variance": "tables/test_choices.py::test_the_cost_is_that_of_the_worst_test_of_any_range"}),
    ],
    24: [
        (instead("apart", in_the_same_call, "withholding"), {"seeds of trials by their index": "core/privacy/test_journal.py::test_seeds_of_trials_do_not_follow_from_the_one_in_the_file"}),
        (replaced("PrivateEstimatorMixin._restate", but_for_the_statement, "but for the statement"), {"the statement of a trial": "search/test_private_search_winners.py::test_everything_that_the_winner_holds_states_the_search[classifier]"}),
        (skipped("PrivateEstimatorMixin._restate", within="PrivateEstimatorMixin._restate"), {"the budget of a trial, in a sketch": "search/test_private_search_winners.py::test_everything_that_the_winner_holds_states_the_search[flow]"}),
        (skipped("Ledger.forget"), {"a ledger remembered for each trial": "search/test_private_search_winners.py::test_no_registry_of_the_process_counts_trials"}),
    ],
    25: [
        (returning("NonPrivateEvent.is_private", True, "charge_fit"), {"values without noise in a ledger": "core/privacy/test_journal.py::test_without_noise_nothing_is_written"}),
    ],
    26: [
        (instead("leaves", undivided, "leaves"), {"within another composite": "core/privacy/test_check_pipeline.py::test_a_step_that_learns_without_noise_is_refused_and_warned_of[before-a nested PCA]"}),
        (reading("_is_declared", _DECLARED=but_for_unknown_values), {"an encoder that names unknown values": "core/privacy/test_check_pipeline.py::test_what_is_not_declared_is_learned[changed1]"}),
        (returning("leaks", (), "warn_of_composition"), {"a fit that says nothing": "core/privacy/test_check_pipeline.py::test_a_step_that_learns_without_noise_is_refused_and_warned_of[before-StandardScaler]"}),
        (returning("_statements", (), "warn_of_composition"), {"a private step in a column transformer": "core/privacy/test_check_pipeline.py::test_private_steps_share_a_budget_or_are_told_their_sum[columns, then a step]"}),
        (returning("leaks", but_for_memory), {"a memory that keeps rows in files": "core/privacy/test_check_pipeline.py::test_a_memory_would_keep_rows_in_files[inside]"}),
        (given("_makes_numbers", numbers=True), {"a step that quotes a text among numbers": "core/privacy/test_check_pipeline.py::test_no_accepted_step_quotes_a_bad_row"}),
        (instead("is_shared", all_are_budgets), {"two budgets taken for one": "core/privacy/test_check_pipeline.py::test_private_steps_share_a_budget_or_are_told_their_sum[steps]"}),
    ],
    29: [
        (returning("reserve", with_all_caps), {"the caps of a budget without a plan": "core/privacy/test_planned.py::test_the_plan_and_all_that_is_admitted_beside_it_cost_no_more_than_the_budget[search]"}),
        (given("Terms.admit", totals=of_no_planned_fit), {"a planned fit made twice": "core/privacy/test_planned.py::test_each_planned_fit_is_made_once_by_whichever_budget_asks_first"}),
        (given("PlannedFit.covers", mu=no_more_than_planned), {"less noise than was planned": "core/privacy/test_planned.py::test_only_what_costs_no_more_than_was_planned_is_free[event0-dearer0-nearly0]"}),
        (given("PlannedFit.covers", others=as_planned), {"other batches than were planned": "core/privacy/test_planned.py::test_only_what_costs_no_more_than_was_planned_is_free[event2-dearer2-nearly2]"}),
    ],
    30: [
        (charged_late("SlicedSketch.fit"), {"charged after all passes": "core/sources/test_charges.py::test_one_charge_after_the_first_pass_and_before_noise[sketch]"}),
    ],
}
# fmt: on
