"""Defects of privacy that somebody could write in `skdpot.sampling`."""
# ruff: noqa: E501

from dataclasses import replace

import numpy as np
import torch

from tests.contract.defects.changes import _ONE_STEP
from tests.contract.injection import (
    LARGE,
    Injections,
    all_of,
    checked_late,
    given,
    half,
    half_noise,
    instead,
    returning,
    skipped,
)


def with_a_batch_of_all(plan):
    return replace(plan, batch_sizes=(plan.n_samples,))


def compared_in_one_batch(task):
    penalty = replace(task.loss.penalty, batch_sizes=task.cells.sizes)
    return replace(task, loss=replace(task.loss, penalty=penalty))


def endless_for_the_loss(clip, vectors):
    return LARGE if vectors is None else clip


def endless_for_codes(clip, vectors):
    return clip if vectors is None else LARGE


def times_all_rows(total, plan):
    return {
        parameter: value * plan.n_samples / plan.batch_size for parameter, value in total.items()
    }


def ranks_of_an_unstable_sort(projections):
    return torch.from_numpy(projections.numpy().argsort(axis=1)).argsort(dim=1)


def a_fraction_of_blocks(n_projections, n_features):
    return n_projections / n_features


def the_number_of_rows(released, rows):
    return len(rows)


def without_noise(plan):
    return replace(plan, noise=None)


def as_wide_as_the_rows(bounds, rows):
    return replace(bounds, radius=float(np.abs(bounds.to_ball(rows)).max()))


def with_sorted_columns(rows):
    return np.sort(rows, axis=0)


def by_the_norms_of_rows(step, rows):
    def divided(network, number):
        step(network, number)
        for weights in network.parameters():
            weights.grad /= rows.norm(dim=1).sum()

    return divided


def times_the_largest_value(releases, rows):
    for release in releases:
        yield replace(release, value=min(np.abs(rows).max(), 100.0) * release.value)


# fmt: off
INJECTIONS: Injections = {
    1: [
        (half_noise("noisy_batches"), {
            "projected rows, lattice": "contract/test_noise.py::test_noise_has_the_law_that_is_charged[rows]",
            "projected rows, float": "contract/test_noise.py::test_noise_has_the_law_that_is_charged[rows, float]",
            "projected rows, lattice, by audit": "contract/test_claims_by_audit.py::test_no_audit_proves_more_than_the_claim[projected rows]"}),
        (half_noise("noisy_gradient_steps"), {"gradients of a generator": "core/nets/test_steps.py::test_a_step_is_the_noisy_sum_of_its_batch_over_the_public_batch_size[generator]"}),
        (half_noise("private_steps"), {
            "sums of an autoencoder": "core/nets/test_steps.py::test_a_step_is_the_noisy_sum_of_its_batch_over_the_public_batch_size[autoencoder]",
            "sums of an autoencoder, by audit": "contract/test_claims_by_audit.py::test_no_audit_proves_more_than_the_claim[sums of an autoencoder]"}),
    ],
    2: [
        (given("by_jacobians", "AutoencoderLoss.clipped_sum", clip=endless_for_the_loss), {"gradient of an autoencoder": "core/nets/test_steps.py::test_no_neighbour_moves_a_sum_further_than_the_sensitivity"}),
        (given("by_jacobians", "AutoencoderLoss.clipped_sum", clip=endless_for_codes), {"Jacobian of the codes of an autoencoder": "core/nets/test_steps.py::test_no_neighbour_moves_a_sum_further_than_the_sensitivity"}),
        (given("shares_of_vectors", "AutoencoderLoss.local_vectors", clip=LARGE), {"pulls of codes towards a release": "core/nets/test_steps.py::test_no_neighbour_moves_a_sum_with_released_codes_further"}),
        (skipped("ClippedOutputs.values", "outputs", "PriorDistance.vectors"), {"codes that are compared with a prior": "core/nets/test_penalties.py::test_codes_that_are_not_finite_are_bounded_too[1e+300-sphere]"}),
        (skipped("ClippedOutputs.values", "outputs", "ParityDistance.vectors"), {"codes of groups": "core/nets/test_penalties.py::test_codes_that_are_not_finite_are_bounded_too[1e+300-codes of two groups]"}),
        (skipped("ClippedOutputs.values", "outputs", "clipped_gradient"), {"outputs of a generator": "core/nets/test_steps.py::test_outputs_and_jacobians_of_a_generator_are_clipped_apart"}),
    ],
    3: [
        (all_of(given("Presample._noisy_rows", n_steps=3), _ONE_STEP), {"all rows at every step": "contract/test_draws_are_charged.py::test_every_noise_is_charged_as_often_as_it_is_drawn[flow, presample]"}),
        (given("plan_training", "DPSGD._plan", others=()), {"distributions of codes": "contract/test_draws_are_charged.py::test_every_noise_is_charged_as_often_as_it_is_drawn[autoencoder, parity, sketch]"}),
    ],
    7: [
        (given("SampledGaussianEvent.__init__", "plan_rows", batch_sizes=half), {"batches of projected rows, without_replacement": "sampling/test_row_releases.py::test_batches_are_as_large_as_is_charged[without_replacement]"}),
        (given("SampledGaussianEvent.__init__", "plan_rows", sampling_rate=half), {"batches of projected rows, poisson": "sampling/test_row_releases.py::test_batches_are_as_large_as_is_charged[poisson]"}),
    ],
    9: [
        (instead("stable_ranks", ranks_of_an_unstable_sort), {"codes that are compared with a prior": "core/nets/test_penalties.py::test_ties_keep_their_order_when_a_record_is_replaced[prior]"}),
    ],
    10: [
        (given("release_gradient", "noisy_gradient_steps", total=times_all_rows, plan=with_a_batch_of_all), {"noise of a generator's mean gradient": "core/nets/test_steps.py::test_a_step_is_the_noisy_sum_of_its_batch_over_the_public_batch_size[generator]"}),
        (given("DPSGD._plan", task=compared_in_one_batch), {"sensitivity of the codes of groups": "sampling/test_autoencoder_privacy.py::test_the_event_and_the_sensitivity_are_those_of_the_batches_of_groups[a small group]"}),
    ],
    12: [
        (skipped("sorted_along", "values"), {"projected rows": "sampling/test_row_releases.py::test_shapes_types_and_order[orthogonal-discrete]"}),
        (all_of(skipped("sorted_along", "values"), returning("DataBounds.to_ball", with_sorted_columns, "noisy_batches")), {"sorted before the noise": "sampling/test_row_mechanisms.py::test_values_are_sorted_after_the_noise[orthogonal-resample]"}),
    ],
    14: [
        (instead("n_orthogonal_blocks", a_fraction_of_blocks), {
            "directions of a step": "sampling/test_row_releases.py::test_largest_norm_is_one[31-8-orthogonal]",
            "projected rows": "sampling/test_row_releases.py::test_the_worst_record_moves_a_truncated_block_by_the_sensitivity"}),
    ],
    18: [
        (instead("_number_of_records", the_number_of_rows), {"a private number of rows of a sampler": "contract/test_unit_of_privacy.py::test_nothing_shows_how_many_rows_there_are[flow]"}),
    ],
    19: [
        (checked_late("check_per_record", "Gradient.release"), {"a network that mixes records": "contract/test_refusals.py::test_what_is_refused_charges_and_changes_nothing_and_quotes_no_value[generator, BatchNorm]"}),
    ],
    25: [
        (given("LossCurve.of_plan", "DPSGD.release", plan=without_noise), {"losses of a private autoencoder": "fair/test_loss_curve.py::test_losses_are_told_where_nothing_is_protected_alone[codes]"}),
        (returning("private_steps", by_the_norms_of_rows), {"steps by the largest row": "contract/test_replay.py::test_a_fit_follows_from_its_releases[autoencoder]"}),
        (returning("BoundsPlan.settled", as_wide_as_the_rows, "Gradient.release"), {"outputs as wide as the rows": "contract/test_replay.py::test_a_fit_follows_from_its_releases[generator, gradient]"}),
        (returning("noisy_batches", times_the_largest_value), {"projected rows up to the largest": "contract/test_replay.py::test_a_fit_follows_from_its_releases[flow, resample]"}),
    ],
}
# fmt: on
