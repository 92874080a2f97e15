"""Defects of privacy that somebody could write in `skdpot.sampling`."""
# ruff: noqa: E501

from dataclasses import replace

import numpy as np

from tests.contract.defects.changes import _ONE_STEP
from tests.contract.injection import (
    Injections,
    all_of,
    checked_late,
    given,
    half,
    half_noise,
    returning,
    rewritten,
    skipped,
)


def with_a_batch_of_all(plan):
    return replace(plan, batch_sizes=(plan.n_samples,))


def compared_in_one_batch(loss, cells):
    return replace(loss, penalty=replace(loss.penalty, batch_sizes=cells.sizes))


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
        (rewritten("AutoencoderLoss.clipped_sum", ("by_jacobians(self.clip)", "by_jacobians(1e300)")), {"gradient of an autoencoder": "core/nets/test_steps.py::test_no_neighbour_moves_a_sum_further_than_the_sensitivity"}),
        (rewritten("AutoencoderLoss.clipped_sum", ("by_jacobians(self.clip_jacobian, pulls)", "by_jacobians(1e300, pulls)")), {"Jacobian of the codes of an autoencoder": "core/nets/test_steps.py::test_no_neighbour_moves_a_sum_further_than_the_sensitivity"}),
        (rewritten("AutoencoderLoss.local_vectors", ("shares_of_vectors(pulls, gram, clip)[:, None] * pulls", "pulls")), {"pulls of codes towards a release": "core/nets/test_steps.py::test_no_neighbour_moves_a_sum_with_released_codes_further"}),
        (skipped("ClippedOutputs.values", "outputs", "PriorDistance.vectors"), {"codes that are compared with a prior": "core/nets/test_penalties.py::test_codes_that_are_not_finite_are_bounded_too[1e+300-sphere]"}),
        (skipped("ClippedOutputs.values", "outputs", "ParityDistance.vectors"), {"codes of groups": "core/nets/test_penalties.py::test_codes_that_are_not_finite_are_bounded_too[1e+300-codes of two groups]"}),
        (skipped("ClippedOutputs.values", "outputs", "clipped_gradient"), {"outputs of a generator": "core/nets/test_steps.py::test_outputs_and_jacobians_of_a_generator_are_clipped_apart"}),
    ],
    3: [
        (all_of(given("Presample._noisy_rows", n_steps=3), _ONE_STEP), {"all rows at every step": "contract/test_draws_are_charged.py::test_every_noise_is_charged_as_often_as_it_is_drawn[flow, presample]"}),
        (rewritten("DPSGD._plan", ("others=(tables.event,) if tables is not None and private else ()", "others=()")), {"distributions of codes": "contract/test_draws_are_charged.py::test_every_noise_is_charged_as_often_as_it_is_drawn[autoencoder, parity, sketch]"}),
    ],
    7: [
        (given("SampledGaussianEvent.__init__", "plan_rows", batch_sizes=half), {"batches of projected rows, without_replacement": "sampling/test_row_releases.py::test_batches_are_as_large_as_is_charged[without_replacement]"}),
        (given("SampledGaussianEvent.__init__", "plan_rows", sampling_rate=half), {"batches of projected rows, poisson": "sampling/test_row_releases.py::test_batches_are_as_large_as_is_charged[poisson]"}),
    ],
    9: [
        (rewritten("PriorDistance.vectors", ("projections.argsort(dim=1, stable=True)", "torch.from_numpy(projections.numpy().argsort(axis=1))")), {"codes that are compared with a prior": "core/nets/test_penalties.py::test_ties_keep_their_order_when_a_record_is_replaced[prior]"}),
    ],
    10: [
        (all_of(rewritten("noisy_gradient_steps", ("plan.batch_size *", "plan.n_samples *")), given("release_gradient", "noisy_gradient_steps", plan=with_a_batch_of_all)), {"noise of a generator's mean gradient": "core/nets/test_steps.py::test_a_step_is_the_noisy_sum_of_its_batch_over_the_public_batch_size[generator]"}),
        (given("DPSGD._plan", loss=compared_in_one_batch), {"sensitivity of the codes of groups": "sampling/test_autoencoder_privacy.py::test_the_event_and_the_sensitivity_are_those_of_the_batches_of_groups[a small group]"}),
    ],
    12: [
        (rewritten("noisy_batches", ("values.sort(axis=1)", "pass")), {"projected rows": "sampling/test_row_releases.py::test_shapes_types_and_order[orthogonal-discrete]"}),
        (all_of(rewritten("noisy_batches", ("values.sort(axis=1)", "pass")), returning("DataBounds.to_ball", with_sorted_columns, "noisy_batches")), {"sorted before the noise": "sampling/test_row_mechanisms.py::test_values_are_sorted_after_the_noise[orthogonal-resample]"}),
    ],
    14: [
        (rewritten("StepDirections.largest_norm", ("math.ceil(", "(")), {
            "directions of a step": "sampling/test_row_releases.py::test_largest_norm_is_one[31-8-orthogonal]",
            "projected rows": "sampling/test_row_releases.py::test_the_worst_record_moves_a_truncated_block_by_the_sensitivity"}),
    ],
    18: [
        (rewritten("SyntheticRows.fit", ("getattr(release.value, 'n_samples_', None)", "None")), {"a private number of rows of a sampler": "contract/test_unit_of_privacy.py::test_nothing_shows_how_many_rows_there_are[flow]"}),
    ],
    19: [
        (checked_late("check_per_record", "Gradient.release"), {"a network that mixes records": "contract/test_refusals.py::test_what_is_refused_charges_and_changes_nothing_and_quotes_no_value[generator, BatchNorm]"}),
    ],
    25: [
        (rewritten("DPSGD.release", ("plan.noise is None", "True")), {"losses of a private autoencoder": "fair/test_loss_curve.py::test_losses_are_told_where_nothing_is_protected_alone[codes]"}),
        (returning("private_steps", by_the_norms_of_rows), {"steps by the largest row": "contract/test_replay.py::test_a_fit_follows_from_its_releases[autoencoder]"}),
        (rewritten("Gradient.release", ("OutputUnits.of_ball(bounds)", "OutputUnits.of_ball(type(bounds)(bounds.center, bounds.scale, np.abs(bounds.to_ball(rows)).max()))")), {"outputs as wide as the rows": "contract/test_replay.py::test_a_fit_follows_from_its_releases[generator, gradient]"}),
        (returning("noisy_batches", times_the_largest_value), {"projected rows up to the largest": "contract/test_replay.py::test_a_fit_follows_from_its_releases[flow, resample]"}),
    ],
}
# fmt: on
