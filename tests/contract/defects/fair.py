"""Defects of privacy that somebody could write in `skdpot.fair`."""
# ruff: noqa: E501

from tests.contract.injection import (
    Injections,
    given,
    half_noise,
    returning,
    rewritten,
)


def true_count(count, labels):
    return float(labels.sum())


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
        (rewritten("_moments", ("np.clip(rows, -1.0, 1.0)", "rows")), {"moments of features": "fair/test_scores.py::test_no_neighbour_moves_a_release_further_than_its_sensitivity[logistic]"}),
        (rewritten("_clipped", ("shares_of_vectors(own, gram, clip)[:, None]", "1.0")), {"gradients of scores": "fair/test_scores.py::test_no_neighbour_moves_a_release_further_than_its_sensitivity[squared]"}),
    ],
    3: [
        (rewritten("release_law", ("return release_score_tables(placed.lists, own, sizes, noise, context.streams.secret, of)", "return [release_score_tables(placed.lists, own, sizes, noise, context.streams.secret, of) for _ in range(2)][0]")), {"counts of scores": "fair/test_bayes_rule.py::test_what_is_charged_is_what_is_released_and_a_refusal_changes_nothing"}),
        (rewritten("TransportedRows.release", ("others=(noise.event,) if noise is not None and private else ()", "others=()")), {"both domains of an adapter": "contract/test_draws_are_charged.py::test_every_noise_is_charged_as_often_as_it_is_drawn[adapter]"}),
    ],
    5: [
        (given("plan_threshold", public_classes=True), {"threshold, class taken as public": "fair/test_fair_privacy.py::test_the_threshold_pays_for_what_a_record_changes[sketch, demographic_parity, tuned]"}),
    ],
    10: [
        (rewritten("RankedOutputs._plan", ("sum(sizes), penalty,", "sum(sizes), ParityPenalty(cells.strata, cells.sizes),")), {"sensitivity of fair sums by ranks": "fair/test_fair_privacy.py::test_ranked_sums_have_the_sensitivity_of_their_batches_and_directions[ranks, equalized_odds]"}),
    ],
    17: [
        (rewritten("FairGradients._training", ("(task.bins, tables)", "(tables,)")), {"bins of the target": "contract/test_draws_are_charged.py::test_every_noise_is_charged_as_often_as_it_is_drawn[regressor, odds]"}),
        (rewritten("Barycenter._plan", ("[spread.event, ", "[")), {"the spread of targets": "contract/test_draws_are_charged.py::test_every_noise_is_charged_as_often_as_it_is_drawn[regressor, barycenter]"}),
        (rewritten("Barycenter._plan", ("transport.events if", "transport.events[1:] if")), {"predictions that are moved": "contract/test_draws_are_charged.py::test_every_noise_is_charged_as_often_as_it_is_drawn[regressor, barycenter]"}),
        (rewritten("plan_scores", ("(*events, steps)", "(steps,)")), {"moments of features": "fair/test_scores.py::test_all_releases_together_cost_what_was_asked_for[0.5-linear]"}),
        (rewritten("GroupScorePlan.events", ("*hidden", "")), {"probabilities of groups": "fair/test_bayes_rule.py::test_what_is_charged_is_what_is_released_and_a_refusal_changes_nothing"}),
        (rewritten("BayesRule.release", ("[] if noise is None", "[] if True")), {"counts of scores": "fair/test_bayes_rule.py::test_what_is_charged_is_what_is_released_and_a_refusal_changes_nothing"}),
    ],
    25: [
        (rewritten("release_frontier", ("_radii(summed(_sizes, plan.sizes), plan.sizes.sigma, n)", "_radii(_sizes(*errors_and_moves(*scores, targets)).sum(0), 0.0, n)")), {"lengths of true errors": "contract/test_replay.py::test_a_fit_follows_from_its_releases[regressor, barycenter]"}),
        (rewritten("release_rounds", ("within = tables.range_of_interest(limits)", "within = (outputs.mean(0), 2 * outputs.std(0))")), {"predictions measured where they are": "contract/test_replay.py::test_a_fit_follows_from_its_releases[regressor, barycenter]"}),
        (rewritten("FairGradients.release", ("plan.noise is None", "True")), {"losses of a private fit": "fair/test_loss_curve.py::test_losses_are_told_where_nothing_is_protected_alone[sketch]"}),
        (rewritten("release_target_bins", ("width = first", "inner = np.quantile(targets, [0.2, 0.4, 0.6, 0.8]) - tables.centres[0]; width = first")), {"bins of true targets": "contract/test_replay.py::test_a_fit_follows_from_its_releases[regressor, odds]"}),
        (rewritten("release_spread", ("error = noise", "mean = targets.mean(axis=0); error = noise")), {"the mean of true targets, before training": "contract/test_replay.py::test_a_fit_follows_from_its_releases[regressor, barycenter]"}),
        (rewritten("release_recalibration", ("error = 2.0", "target = targets.mean(axis=0); error = 2.0")), {"the mean of true targets": "contract/test_replay.py::test_a_fit_follows_from_its_releases[regressor, barycenter]"}),
        (rewritten("FairPrivatePostProcessor.fit", ("ScoreLists(shares, ", "ScoreLists(shares + (hidden is not None) * targets.mean(), ")), {"lists by true classes": "contract/test_replay.py::test_a_fit_follows_from_its_releases[post-processor, group by its estimator]"}),
        (rewritten("ScorePlan._standardised", ("mean.clip(-1.0, 1.0)", "rows.mean(0)")), {"means of features": "fair/test_scores.py::test_a_training_follows_from_its_releases"}),
        (returning("_noisy_count", true_count), {"a threshold by true labels": "contract/test_replay.py::test_a_fit_follows_from_its_releases[classifier, threshold]"}),
        (rewritten("FairGradients.release", ("_LARGEST_RATE)", "_LARGEST_RATE) / float(records.targets.double().std())")), {"a learning rate by true targets": "contract/test_replay.py::test_a_fit_follows_from_its_releases[regressor, ranks]"}),
        (rewritten("TransportedRows.release", ("limits = _RANGE *", "limits = np.abs(rows).max() *")), {"slices as wide as the rows of a domain": "contract/test_replay.py::test_a_fit_follows_from_its_releases[adapter]"}),
        (rewritten("TransportedRows.release", ("_LARGEST_RATE", "_LARGEST_RATE * float(records.targets.double().std())")), {"steps as long as labels vary": "contract/test_replay.py::test_a_fit_follows_from_its_releases[adapter]"}),
    ],
    28: [
        (rewritten("plan_score_tables", ("calibrate_lattice(mu, moved,", "calibrate_lattice(mu, moved / math.sqrt(2.0),")), {"scores that leave a bin and enter another": "fair/test_bayes_rule.py::test_a_replaced_record_moves_the_table_by_no_more_than_the_sensitivity[blind]"}),
        (rewritten("release_score_tables", ("codes=tables, n_classes=lists.n_tables)", "codes=tables, n_classes=lists.n_tables) * 2")), {"a table of scores counted twice": "fair/test_bayes_rule.py::test_a_replaced_record_moves_the_table_by_no_more_than_the_sensitivity[aware]"}),
        (rewritten("plan_scores", ("2.0 * math.sqrt(d)", "math.sqrt(2.0 * d)")), {"moments of features": "fair/test_scores.py::test_no_neighbour_moves_a_release_further_than_its_sensitivity[logistic]"}),
        (rewritten("plan_scores", ("calibrate_rounded(of_step, 2.0 * clip,", "calibrate_rounded(of_step, clip,"), ), {"gradients of scores": "fair/test_scores.py::test_no_neighbour_moves_a_release_further_than_its_sensitivity[logistic]"}),
    ],
}
# fmt: on
