"""The scikit-learn contract, without a single expected failure."""

from collections import Counter
from inspect import isabstract

import numpy as np
import pytest
from sklearn.base import BaseEstimator, clone
from sklearn.utils.estimator_checks import estimator_checks_generator

from skdpot import (
    ClientContribution,
    DPDomainAdapter,
    DPSlicedFlowSampler,
    DPSlicedGenerator,
    DPTableSynthesizer,
    FairPrivateClassifier,
    FairPrivateRegressor,
    FairPrivateTransformer,
    PrivacyBudget,
    PrivateSWAutoencoder,
    PrivateTrajectorySampler,
    PrivateWassersteinDistance,
    SlicedSketch,
    mechanisms,
)
from skdpot.preprocessing import PrivateScaler, TableEncoder
from tests.flat_options import flow_sampler, made

# The checks set random_state, fit very few rows and expect no warning but this.
pytestmark = [
    pytest.mark.filterwarnings(f"ignore:{text}:skdpot.exceptions.PrivacyWarning")
    for text in (
        ".*makes the privacy noise reproducible",
        "Private bounds. .*stand out",
        "Private categories",
        "The table is too small",
        ".*a feature beyond 10",  # features of one check are about 100
    )
] + [
    # and no groups
    pytest.mark.filterwarnings("ignore:.*one group:skdpot.exceptions.FairnessWarning"),
    pytest.mark.filterwarnings("ignore:.*without sample_domain:UserWarning"),
]

WHOLE = {"batch_fraction": 1.0, "n_steps": 20}  # the cost of other batches takes seconds
ESTIMATORS = [
    ClientContribution(),
    DPDomainAdapter(mechanism=mechanisms.TransportedRows(20, batch_fraction=1.0)),
    DPSlicedFlowSampler(),
    flow_sampler("resample", n_steps=10, n_particles=300),
    flow_sampler("presample", n_steps=50, n_particles=300),
    flow_sampler("moments", n_particles=300),
    DPSlicedGenerator(n_steps=20),
    DPTableSynthesizer(),
    FairPrivateClassifier(),
    made(FairPrivateClassifier, **WHOLE),
    FairPrivateRegressor(),
    made(FairPrivateRegressor, **WHOLE),
    FairPrivateTransformer(),
    made(PrivateSWAutoencoder, n_steps=20),
    PrivateScaler(),
    PrivateTrajectorySampler(),
    PrivateWassersteinDistance(),
    SlicedSketch(),
    TableEncoder(),
]


# One of each estimator: its mechanisms share its `fit`, and whatever else the checks look at.
ONE_OF_EACH = list({type(estimator): estimator for estimator in reversed(ESTIMATORS)}.values())
QUICK_CHECKS = {
    "check_dict_unchanged",
    "check_estimators_dtypes",
    "check_estimators_nan_inf",
    "check_estimators_pickle",
    "check_fit2d_1feature",
    "check_n_features_in_after_fitting",
    "check_no_attributes_set_in_init",
}
CHECKS = [pair for estimator in ONE_OF_EACH for pair in estimator_checks_generator(estimator)]


def name_of(part):
    return getattr(getattr(part, "func", part), "__name__", type(part).__name__)


@pytest.mark.parametrize(
    ("estimator", "check"),
    [
        pytest.param(*pair, marks=() if name_of(pair[1]) in QUICK_CHECKS else pytest.mark.slow)
        for pair in CHECKS
    ],
    ids=name_of,
)
def test_scikit_learn_checks(estimator, check):
    check(estimator)


# Defaults that differ from those of most others with a parameter of the name.
SLICES, AXES = {"n_projections": 50}, {"projections": "axes+orthogonal"}
OWN = {
    "DPDomainAdapter": {"mechanism": "transport"},
    "DPSGD": {"clip_gradient": 1.0},
    "DPSlicedFlowSampler": {"n_steps": 200},
    "DPSlicedGenerator": {"learning_rate": 0.005, "module": None},
    "PrivateSWAutoencoder": {"mechanism": "dpsgd"},
    "SlicedSketch": AXES,
    "Barycenter": {"n_rounds": None, "share": 0.25},
    "CodeParity": {"clip_output": 2.0} | SLICES,
    "FairPrivateClassifier": {"level": 0.8, "mechanism": "bayes"},
    "FairPrivateRegressor": {"mechanism": "barycenter"},
    "FedWad": {"n_rounds": 30},
    "ImageNetwork": {"latent_dim": 12},
    "LatentNetwork": {"latent_dim": None, "module": None},
    "MeanFieldLangevin": {"batch_fraction": 1.0, "clip_gradient": None},
    "PriorPenalty": SLICES,
    "RankedOutputs": {"alpha": 0.75, "clip_jacobian": 0.25} | SLICES,
    "Resample": {"n_projections": 70, "sampling": "without_replacement"},
    "Sketch": AXES,
    "SketchedOutputs": {"alpha": 0.75, "n_releases": None} | SLICES,
    "Sliced": {"n_bins": 64, "target": "population"},
    "TransportedRows": {"n_projections": 256, "share": 0.3},
    "TrajectorySketch": {"regularization": 1e-4} | AXES,
}


def test_parameters_that_mean_the_same_have_the_same_defaults():
    kinds = [*map(type, ESTIMATORS), *(getattr(mechanisms, name) for name in mechanisms.__all__)]
    kinds = [kind for kind in kinds if isinstance(kind, type) and issubclass(kind, BaseEstimator)]
    kinds = {kind: kind().get_params() for kind in kinds if not isabstract(kind)}
    for name in {name for parameters in kinds.values() for name in parameters}:
        found = {kind: given[name] for kind, given in kinds.items() if name in given}
        usual = Counter(map(repr, found.values())).most_common(1)[0][0]
        for kind, value in found.items():
            if name in (own := OWN.get(kind.__name__, {})):
                assert value == own[name] != usual, (kind, name)
            else:
                assert repr(value) == usual, (kind, name)


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
