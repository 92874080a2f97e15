"""Defects of privacy that somebody could write in `skdpot.nets`."""
# ruff: noqa: E501

from dataclasses import replace

import numpy as np
import torch

from skdpot.release.moments import _UNIT
from tests.contract.injection import (
    LARGE,
    Injections,
    given,
    half,
    half_noise,
    instead,
    returning,
    skipped,
    twice,
)


def norms_in_single_precision(gram, self):
    inputs, gradients = self.factors
    scale = (inputs * inputs).sum(1) + float(len(self.parameters) - 1)
    return scale[:, None, None] * (gradients.float() @ gradients.float().mT).double()


def divided_by_all_rows(sensitivity, n_samples, batch_size):
    return sensitivity * sum(batch_size) / sum(n_samples)


def of_all_records(sensitivity, self):
    compared = [self.batch_sizes[cell] for stratum in self.strata for cell in stratum]
    return sensitivity * min(compared) / sum(compared)


def nearly_the_same(first, second):
    return torch.allclose(first, second, atol=1e-4)


def charged_for_its_last_phase(plan):
    return replace(plan, event=plan.event.phases[-1])


def half_as_large_again(radius):
    return 1.5 * radius


def rounded_to_the_nearest(vectors, radius):
    norms = np.linalg.norm(vectors, axis=1, keepdims=True) / radius
    return np.round(vectors / np.maximum(norms, 1.0) / _UNIT)


def rounded_by_their_number(projections):
    return projections * (1.0 + 2.0**-50 * projections.shape[1])


# fmt: off
INJECTIONS: Injections = {
    1: [
        (half_noise("PrivateWassersteinGradient._steps"), {"gradients of the tool": "core/nets/test_wasserstein_gradient.py::test_a_gradient_has_the_noise_of_its_event[X]"}),
        (half_noise("release_gradient"), {"every sum of a network": "core/nets/test_steps.py::test_a_step_is_the_noisy_sum_of_its_batch_over_the_public_batch_size[autoencoder, prior]"}),
        (half_noise("noisy_counts"), {
            "fair tables": "contract/test_noise.py::test_noise_has_the_law_that_is_charged[outputs]",
            "fair tables, by audit": "contract/test_claims_by_audit.py::test_no_audit_proves_more_than_the_claim[fair table]"}),
        (given("calibrate_lattice", "plan_output_tables", mu=twice), {"noise of one release for several": "contract/test_plans.py::test_a_plan_costs_what_it_was_given[outputs]"}),
    ],
    2: [
        (given("_units", radius=half_as_large_again), {"vectors of noisy sums": "fair/test_barycenter.py::test_a_record_moves_noisy_sums_by_at_most_twice_the_radius[1-1.0]"}),
        (returning("OuterProducts.gram", norms_in_single_precision), {"norms in single precision": "core/nets/test_clipping_precision.py::test_no_record_contributes_more_than_the_clip"}),
        (given("shares_of_vectors", clip=LARGE), {"fair gradient": "fair/test_fair_sums.py::test_twice_the_clip_is_attained"}),
        (given("shares_of_jacobians", clip=LARGE), {
            "Jacobian of a fair output": "fair/test_fair_sums.py::test_the_sensitivity_of_ranked_sums_is_attained[0.99]",
            "Jacobian of a generator": "core/nets/test_steps.py::test_no_neighbour_moves_a_generators_gradient_further_than_the_sensitivity[steep-1.0]"}),
        (given("fixed_side_sensitivity", clip_jacobian=1.0), {"Jacobian of a generator clipped to another norm than the charged one": "sampling/test_generator.py::test_the_sensitivity_is_that_of_the_clip_that_is_used[8.0]"}),
        (given("by_rows", clip=LARGE), {"rows of a Jacobian": "core/nets/test_wasserstein_gradient.py::test_no_neighbour_moves_it_further_than_the_sensitivity[network-X-rows]"}),
        (skipped("ClippedOutputs.values", "outputs", "_Sides.clipped_sum"), {"points of the tool for gradients": "core/nets/test_wasserstein_gradient.py::test_no_neighbour_moves_it_further_than_the_sensitivity[fixed-Z-spectral]"}),
    ],
    3: [
        (given("SampledGaussianEvent.__init__", "plan_training", n_steps=1), {
            "sums of Poisson batches": "contract/test_draws_are_charged.py::test_every_noise_is_charged_as_often_as_it_is_drawn[classifier, threshold]",
            "sums of batches of a fixed size": "contract/test_draws_are_charged.py::test_every_noise_is_charged_as_often_as_it_is_drawn[classifier, ranks, odds]"}),
        (given("plan_output_tables", n_releases=1), {"fair tables, histograms of a threshold": "contract/test_draws_are_charged.py::test_every_noise_is_charged_as_often_as_it_is_drawn[classifier, threshold]"}),
    ],
    7: [
        (given("SampledGaussianEvent.__init__", "plan_training", sampling_rate=half), {"Poisson batches of training": "sampling/test_autoencoder_privacy.py::test_the_stated_epsilon_is_that_of_dp_accounting"}),
        (given("placed_batches", "TrainingPlan.batches", rate=twice), {"Poisson batches drawn twice as large": "core/nets/test_steps.py::test_batches_are_fresh_and_as_large_as_is_charged[autoencoder]"}),
    ],
    10: [
        (given("plan_training", "PrivateWassersteinGradient.steps", sensitivity=divided_by_all_rows), {"sensitivity of the tool for gradients": "core/nets/test_wasserstein_gradient.py::test_a_gradient_has_the_noise_of_its_event[both]"}),
        (returning("ParityPenalty.sensitivity", of_all_records), {"sensitivity of a mean gradient": "core/nets/test_penalties.py::test_the_worst_case_is_attained[two groups]"}),
    ],
    13: [
        (skipped("check_per_record"), {
            "the check itself": "core/nets/test_private_modules.py::test_refused[layer0-'1' \\\\(BatchNorm1d\\\\).*GroupNorm]",
            "generator": "contract/test_refusals.py::test_what_is_refused_charges_and_changes_nothing_and_quotes_no_value[generator, BatchNorm]"}),
        (skipped("_refuse_known_layers"), {
            "autoencoder": "contract/test_refusals.py::test_what_is_refused_charges_and_changes_nothing_and_quotes_no_value[autoencoder, BatchNorm]",
            "fair predictor": "contract/test_refusals.py::test_what_is_refused_charges_and_changes_nothing_and_quotes_no_value[classifier, BatchNorm, sketch]"}),
    ],
    17: [
        (returning("plan_training", charged_for_its_last_phase), {
            "targets of a regressor": "contract/test_draws_are_charged.py::test_every_noise_is_charged_as_often_as_it_is_drawn[regressor]",
            "training": "contract/test_draws_are_charged.py::test_every_noise_is_charged_as_often_as_it_is_drawn[autoencoder]"}),
    ],
    19: [
        (skipped("_try_callbacks"), {"a callback that fails": "contract/test_strangers.py::test_a_stranger_fails_before_the_charge_or_not_at_all[FairPrivateClassifier-callbacks-raises]"}),
    ],
    25: [
        (given("PrivateWassersteinGradient._record_loss", noise=None), {"losses of a private training": "core/nets/test_wasserstein_gradient.py::test_a_gradient_has_the_noise_of_its_event[both]"}),
    ],
    27: [
        (given("OutputTables.pulls", "LocalPenalty.of_release", projections=rounded_by_their_number), {"pulls rounded by the size of a private cell": "fair/test_fair_sums.py::test_a_record_that_changes_its_cell_moves_no_bit_of_another"}),
        (skipped("padded", "places"), {"a product of as many rows as records": "contract/test_places.py::test_a_record_that_joins_moves_none_that_is_on_a_kink[predictor-dtype0]"}),
        (instead("_same_bits", nearly_the_same), {"a network that mixes records a little": "core/nets/test_private_modules.py::test_refused[layer5-depends on the other records]"}),
    ],
    28: [
        (instead("_units", rounded_to_the_nearest), {"entries of sums rounded to the nearest unit": "fair/test_barycenter.py::test_rounding_takes_no_vector_beyond_its_radius"}),
    ],
}
# fmt: on
