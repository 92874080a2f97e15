"""The scikit-learn contract, without a single expected failure."""

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.utils.estimator_checks import parametrize_with_checks

from skdpot import (
    ClientContribution,
    DPSlicedFlowSampler,
    DPSlicedGenerator,
    DPTableSynthesizer,
    FairPrivateClassifier,
    FairPrivateRegressor,
    PrivacyBudget,
    PrivateSWAutoencoder,
    PrivateTrajectorySampler,
    PrivateWassersteinDistance,
    SlicedSketch,
)
from skdpot.mechanisms import (
    DPSGD,
    CodeParity,
    FedWad,
    Gradient,
    MeanFieldLangevin,
    Presample,
    PriorPenalty,
    RankedOutputs,
    Resample,
    Sketch,
    SketchedOutputs,
    Sliced,
    TrajectorySketch,
    Triangle,
)
from tests.flat_options import flow_sampler, made

# The checks set random_state, fit very few rows and expect no warning but this.
pytestmark = [
    pytest.mark.filterwarnings(f"ignore:{text}:skdpot.exceptions.PrivacyWarning")
    for text in (
        ".*makes the privacy noise reproducible",
        "Private bounds. .*stand out",
        ".*distances can hardly be told",
        "The table is too small",
        ".*a feature beyond 100",  # features of one check are about 100
    )
] + [
    # and no groups
    pytest.mark.filterwarnings("ignore:.*one group:skdpot.exceptions.FairnessWarning")
]

ESTIMATORS = [
    ClientContribution(),
    DPSlicedFlowSampler(),
    flow_sampler("resample", n_steps=10, n_particles=300),
    flow_sampler("presample", n_steps=50, n_particles=300),
    DPSlicedGenerator(),
    DPTableSynthesizer(),
    made(FairPrivateClassifier, batch_fraction=1.0),  # the cost of others is computed in seconds
    made(FairPrivateRegressor, batch_fraction=1.0),
    made(PrivateSWAutoencoder),
    PrivateTrajectorySampler(),
    PrivateWassersteinDistance(),
    SlicedSketch(),
]


@parametrize_with_checks(ESTIMATORS)
def test_scikit_learn_checks(estimator, check):
    check(estimator)


@pytest.mark.parametrize(
    ("kinds", "names"),
    [
        (
            (DPSlicedFlowSampler, DPSlicedGenerator, SlicedSketch, PrivateTrajectorySampler),
            ("epsilon", "delta", "budget", "bounds", "norm_bound"),
        ),
        ((Sketch, TrajectorySketch, SlicedSketch), ("n_projections", "n_bins", "projections")),
        ((Sketch, PrivateTrajectorySampler, SlicedSketch), ("group_size",)),
        ((Resample, Presample), ("projections", "sigma", "noise")),
        ((Resample, Gradient), ("batch_size", "projections", "sigma")),
        ((Resample, Gradient, DPSGD), ("batch_size", "sigma")),
        ((TrajectorySketch, MeanFieldLangevin), ("smooth", "schedule")),
        (
            (SketchedOutputs, RankedOutputs),
            (
                "n_steps",
                "learning_rate",
                "batch_fraction",
                "clip_loss",
                "clip_output",
                "n_projections",
            ),
        ),
        ((PriorPenalty, CodeParity), ("alpha", "n_projections", "clip_jacobian")),
        (
            (Triangle, FedWad),
            ("t", "gamma_scale", "gamma_mean", "n_support", "interpolation", "labeled"),
        ),
        ((Triangle, FedWad, Sliced), ("shared_seed",)),
        ((DPSGD, SketchedOutputs), ("n_steps", "learning_rate")),
    ],
    ids=repr,
)
def test_parameters_that_mean_the_same_have_the_same_defaults(kinds, names):
    first, *others = (kind().get_params() for kind in kinds)
    for name in names:
        assert all(other[name] == first[name] for other in others), name


@pytest.mark.parametrize("estimator", ESTIMATORS, ids=lambda e: type(e).__name__)
def test_a_fit_changes_no_parameters_and_a_notebook_can_show_it(estimator):
    """Newer releases read the docstring for that, and warn of sections they do not know."""
    changes = {"bounds": (-3, 3), "budget": PrivacyBudget(1.0)}
    known = {name: changes[name] for name in changes if name in estimator.get_params()}
    estimator = clone(estimator).set_params(**known)
    before = dict(estimator.get_params())
    estimator.fit(np.random.default_rng(0).normal(size=(30, 2)), [0, 1] * 15)
    assert estimator.get_params() == before
    assert type(estimator).__name__ in estimator._repr_mimebundle_()["text/html"]
