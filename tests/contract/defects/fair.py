"""Defects of privacy that somebody could write in `skdpot.fair`."""
# ruff: noqa: E501

import math
from dataclasses import replace

import numpy as np

from skdpot.fair.regression_frontier import _octaves, _radii
from tests.contract.injection import (
    LARGE,
    Injections,
    given,
    half,
    half_noise,
    replaced,
    returning,
    skipped,
)


def true_count(count, labels):
    return float(labels.sum())


def released_twice(original):
    def drawn_twice(*args):
        original(*args)
        return original(*args)

    return drawn_twice


def of_whole_cells(penalty):
    return replace(penalty, batch_sizes=tuple(5 * n for n in penalty.batch_sizes))


def without_bins(events):
    return tuple(
        event for event in events if event.label != "Targets of each group, for their bins"
    )


def without_spread(events):
    return tuple(event for event in events if event.label != "Mean and spread of the targets")


def without_the_first(events):
    return events[1:]


def first_alone(events):
    return events[:1]


def of_true_errors(radii, errors, moves):
    return _radii(_octaves(errors, moves).sum(0), 0.0, len(errors))


def measured_where_they_are(original):
    def measured(values, *args, within, **options):
        if within is not None:
            within = (values.mean(0), 2 * values.std(0))
        return original(values, *args, within=within, **options)

    return measured


def as_if_without_noise(plan):
    return replace(plan, noise=None)


def by_true_quantiles(cells, targets):
    levels = np.linspace(0, 1, len(cells.edges) + 2)[1:-1]
    return replace(cells, edges=np.quantile(targets, levels))


def around_the_true_mean(affine, targets):
    return replace(affine, shift=targets.mean(axis=0))


def to_the_true_mean(affine, outputs, targets):
    return replace(affine, shift=targets.mean(axis=0) - affine.slope * outputs.mean(axis=0))


def with_lists_by_true_classes(fitted, y):
    if fitted.group_estimator is not None:
        lists = fitted.scores_.lists
        share = np.unique(y, return_inverse=True)[1].mean()
        lists = replace(lists, shares=lists.shares + share)
        fitted.scores_ = replace(fitted.scores_, lists=lists)
    return fitted


def with_true_means(moments, rows):
    return rows.mean(0), moments[1]


def over_the_spread(rate, records):
    return rate / float(records.targets.double().std())


def times_the_spread(rate, records):
    return rate * float(records.targets.double().std())


def as_wide_as_the_rows(limits, values):
    return limits * np.abs(values).max()


def over_root_2(value):
    return value / math.sqrt(2.0)


def counted_twice(counts):
    return 2 * counts


# fmt: off
INJECTIONS: Injections = {
    1: [
        (half_noise("ScorePlan._standardised"), {"means and spreads of features": "fair/test_scores.py::test_every_number_has_the_noise_that_is_charged[logistic]"}),
        (half_noise("release_score_tables"), {"counts of scores": "fair/test_bayes_rule.py::test_numbers_have_the_noise_that_is_charged"}),
        (half_noise("ranked_steps"), {"fair sums by ranks": "core/nets/test_steps.py::test_a_step_is_the_noisy_sum_of_its_batch_over_the_public_batch_size[ranks]"}),
        (half_noise("tabled_steps"), {
            "fair sums by tables": "core/nets/test_steps.py::test_a_step_is_the_noisy_sum_of_its_batch_over_the_public_batch_size[tables]",
            "fair sums by tables, by audit": "contract/test_claims_by_audit.py::test_no_audit_proves_more_than_the_claim[fair sums]"}),
    ],
    2: [
        (skipped("_clipped_features", returns="rows"), {"moments of features": "fair/test_scores.py::test_no_neighbour_moves_a_release_further_than_its_sensitivity[logistic]"}),
        (given("shares_of_vectors", "_clipped_gradients", clip=LARGE), {"gradients of scores": "fair/test_scores.py::test_no_neighbour_moves_a_release_further_than_its_sensitivity[squared]"}),
    ],
    3: [
        (replaced("release_score_tables", released_twice, "released twice"), {"counts of scores": "fair/test_bayes_rule.py::test_what_is_charged_is_what_is_released_and_a_refusal_changes_nothing"}),
        (given("plan_training", "TransportedRows.release", others=()), {"both domains of an adapter": "contract/test_draws_are_charged.py::test_every_noise_is_charged_as_often_as_it_is_drawn[adapter]"}),
    ],
    5: [
        (given("plan_threshold", public_classes=True), {"threshold, class taken as public": "fair/test_fair_privacy.py::test_the_threshold_pays_for_what_a_record_changes[sketch, demographic_parity, tuned]"}),
    ],
    10: [
        (given("FairLoss.ranked_sensitivity", penalty=of_whole_cells), {"sensitivity of fair sums by ranks": "fair/test_fair_privacy.py::test_ranked_sums_have_the_sensitivity_of_their_batches_and_directions[ranks, equalized_odds]"}),
    ],
    17: [
        (returning("SideReleases.events", without_bins), {"bins of the target": "contract/test_draws_are_charged.py::test_every_noise_is_charged_as_often_as_it_is_drawn[regressor, odds]"}),
        (returning("BarycenterPlan.events", without_spread), {"the spread of targets": "contract/test_draws_are_charged.py::test_every_noise_is_charged_as_often_as_it_is_drawn[regressor, barycenter]"}),
        (returning("MovesPlan.events", without_the_first), {"predictions that are moved": "contract/test_draws_are_charged.py::test_every_noise_is_charged_as_often_as_it_is_drawn[regressor, barycenter]"}),
        (given("_event_of", moments=None), {"moments of features": "fair/test_scores.py::test_all_releases_together_cost_what_was_asked_for[0.5-linear]"}),
        (returning("GroupScorePlan.events", first_alone), {"probabilities of groups": "fair/test_bayes_rule.py::test_what_is_charged_is_what_is_released_and_a_refusal_changes_nothing"}),
        (given("_event_of_fit", noise=None), {"counts of scores": "fair/test_bayes_rule.py::test_what_is_charged_is_what_is_released_and_a_refusal_changes_nothing"}),
    ],
    25: [
        (returning("_release_radii", of_true_errors), {"lengths of true errors": "contract/test_replay.py::test_a_fit_follows_from_its_releases[regressor, barycenter]"}),
        (replaced("release_tables", measured_where_they_are, "as wide as the values spread", "release_rounds"), {"predictions measured where they are": "contract/test_replay.py::test_a_fit_follows_from_its_releases[regressor, barycenter]"}),
        (given("LossCurve.of_plan", "PenaltyMechanism.release", plan=as_if_without_noise), {"losses of a private fit": "fair/test_loss_curve.py::test_losses_are_told_where_nothing_is_protected_alone[sketch]"}),
        (returning("release_target_bins", by_true_quantiles), {"bins of true targets": "contract/test_replay.py::test_a_fit_follows_from_its_releases[regressor, odds]"}),
        (returning("release_spread", around_the_true_mean), {"the mean of true targets, before training": "contract/test_replay.py::test_a_fit_follows_from_its_releases[regressor, barycenter]"}),
        (returning("release_recalibration", to_the_true_mean), {"the mean of true targets": "contract/test_replay.py::test_a_fit_follows_from_its_releases[regressor, barycenter]"}),
        (returning("FairPrivatePostProcessor.fit", with_lists_by_true_classes), {"lists by true classes": "contract/test_replay.py::test_a_fit_follows_from_its_releases[post-processor, group by its estimator]"}),
        (returning("ScorePlan._noisy_moments", with_true_means), {"means of features": "fair/test_scores.py::test_a_training_follows_from_its_releases"}),
        (returning("_noisy_count", true_count), {"a threshold by true labels": "contract/test_replay.py::test_a_fit_follows_from_its_releases[classifier, threshold]"}),
        (given("train_on", "PenaltyMechanism.release", learning_rate=over_the_spread), {"a learning rate by true targets": "contract/test_replay.py::test_a_fit_follows_from_its_releases[regressor, ranks]"}),
        (given("release_tables", "TransportedRows.release", limits=as_wide_as_the_rows), {"slices as wide as the rows of a domain": "contract/test_replay.py::test_a_fit_follows_from_its_releases[adapter]"}),
        (given("train_on", "TransportedRows.release", learning_rate=times_the_spread), {"steps as long as labels vary": "contract/test_replay.py::test_a_fit_follows_from_its_releases[adapter]"}),
    ],
    28: [
        (given("calibrate_lattice", "plan_score_tables", sensitivity=over_root_2), {"scores that leave a bin and enter another": "fair/test_bayes_rule.py::test_a_replaced_record_moves_the_table_by_no_more_than_the_sensitivity[blind]"}),
        (returning("count_projections", counted_twice, "release_score_tables"), {"a table of scores counted twice": "fair/test_bayes_rule.py::test_a_replaced_record_moves_the_table_by_no_more_than_the_sensitivity[aware]"}),
        (returning("moments_sensitivity", over_root_2), {"moments of features": "fair/test_scores.py::test_no_neighbour_moves_a_release_further_than_its_sensitivity[logistic]"}),
        (given("calibrate_rounded", "_plan_steps", sensitivity=half), {"gradients of scores": "fair/test_scores.py::test_no_neighbour_moves_a_release_further_than_its_sensitivity[logistic]"}),
    ],
}
# fmt: on
