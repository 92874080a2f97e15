"""What the fuzzing found: each case failed before its defect was mended.

Warnings are errors here as everywhere: nothing that is refused, or works, may warn before.
"""

import re
from functools import cache, partial

import numpy as np
import pytest
import torch
from sklearn.base import clone

from skdpot import (
    ClientContribution,
    DPSlicedGenerator,
    FairPrivateClassifier,
    FairPrivateRegressor,
    PrivacyBudget,
    PrivateScaler,
    PrivateSWAutoencoder,
    PrivateTrajectorySampler,
    SlicedSketch,
    datasets,
    metrics,
)
from skdpot.datasets import trajectories
from skdpot.mechanisms import LatentNetwork, TrajectorySketch
from skdpot.metrics import fairness
from tests.contract.fuzz_harness import chain
from tests.flat_options import (
    flow_sampler,
    made,
    private_distance,
    sliced_generator,
    trajectory_sampler,
)

SECRET, NUMBER = "qzxj-private", 8765.4321
X = np.random.default_rng(0).uniform(-1, 1, (24, 2))
LABELS = np.arange(24) % 2
TIMES = np.arange(24) % 3 * 0.5
SMALL = {"n_projections": 2, "n_bins": 4, "bounds": (-1, 1)}
TRAJECTORIES = {**SMALL, "n_particles": 3, "schedule": [(0.5, None, 1)]}
WHOLE = {"n_steps": 3, "batch_fraction": 1.0}
GROUPED = {"y": LABELS, "sensitive_features": LABELS}
LANGEVIN = {"n_particles": 3, "schedule": [(1e-4, None, 2)]}


class Fails:
    """A table of another library, whose conversion fails with a private value in its text."""

    shape = (24, 2)

    def __len__(self):
        return 24

    def __array__(self, dtype=None, copy=None):
        raise RuntimeError(f"row 3 holds {SECRET} and {NUMBER}")


class FailingColumn(Fails):
    shape = (24,)


TABLES = {"torch": torch.tensor(X, requires_grad=True), "foreign": Fails()}
COLUMNS = {"torch": torch.linspace(0, 1, 24, requires_grad=True), "foreign": FailingColumn()}


def refused(call, text):
    """The call is refused as promised, and nothing private hangs on the error."""
    with pytest.raises((ValueError, TypeError), match=text) as refusal:
        call()
    for error in chain(refusal.value):
        assert SECRET not in repr(error)
        assert "8765" not in repr(error)


# --- fits that were charged and then refused, or refused with an error that nobody promised -------


NARROW = (("n_steps", np.int8(100)), ("n_projections", np.uint64(3)))
SIZES = (
    ("sketch", "n_particles"), ("resample", "mechanism__batch_size"),
    ("presample", "mechanism__n_projections"),
)  # fmt: skip
ON_DEVICES = (
    SlicedSketch(),
    flow_sampler("presample"),
    sliced_generator("gradient"),
    PrivateTrajectorySampler(TrajectorySketch()),
    private_distance(),
)
# Private bounds, tables of outputs and histograms found it out once all was paid.
NOISELESS = (
    (made(PrivateSWAutoencoder, n_steps=2, sampling="without_replacement"), {}),
    (trajectory_sampler("mfld", **LANGEVIN, bounds=(-1, 1), warm_start="mean"), {"y": TIMES}),
    (PrivateScaler(), {}),
    (made(FairPrivateClassifier, **WHOLE, n_releases=2), GROUPED),
    (made(FairPrivateClassifier, **WHOLE, alpha=0.0, tune_threshold=True), GROUPED),
)


def on_a_device(estimator):
    device = next(name for name in estimator.get_params() if name.endswith("device"))
    return clone(estimator).set_params(**{device: "cuda"}, epsilon=50.0)


# What is fitted, what `fit` is given beside X or in its place, and what it says.
FITS = {
    # It passed the check of integers, and then broke the generator's call.
    "n_particles=True": (
        trajectory_sampler(**TRAJECTORIES | {"n_particles": True}), {"y": TIMES}, "'n_particles' p"
    ),
    **{
        f"{name}=True": (SlicedSketch(**{"n_bins": 4, name: True}), {}, f"'{name}' parameter")
        for name in ("epsilon", "n_bins", "norm_bound")
    },
    # No message can carry them: every comparison was refused later.
    **{
        f"distance, {bounds}": (private_distance(**SMALL | {"bounds": bounds}), {}, "bounds")
        for bounds in ((-1e300, 1e300), (0, 1e-200))
    },
    **{
        f"a {kind} table": (SlicedSketch(**SMALL), {"X": table}, "cannot be read as numbers")
        for kind, table in TABLES.items()
    },
    **{
        f"{noun}, a {kind} column": (estimator, {"y": column}, text)
        for kind, column in COLUMNS.items()
        for noun, estimator, text in (
            ("sketch", SlicedSketch(**SMALL, conditional=True), "Unknown label type"),
            ("regressor", made(FairPrivateRegressor, n_steps=1), "y must hold numbers"),
            ("trajectories", trajectory_sampler(**TRAJECTORIES), "t must hold numbers or dates"),
        )
    },
    # ``SlicedSketch(X)`` in the place of ``SlicedSketch().fit(X)``.
    **{
        f"{kind.__name__}, a table": (
            kind(epsilon=np.array([[NUMBER, 1.0]])), {"y": LABELS}, "an object of type ndarray"
        )
        for kind in (SlicedSketch, FairPrivateClassifier)
    },
    # Products with them wrapped around or were no integers.
    **{
        f"{kind.__name__}, narrow {name}": (made(kind, **more, **{name: narrow}), {}, "only int64")
        for name, narrow in NARROW
        for kind, more in ((DPSlicedGenerator, {}), (PrivateSWAutoencoder, {"penalty": "prior"}))
    },
    **{
        f"{mechanism}, {name}={size}": (
            flow_sampler(mechanism).set_params(**{name: size}),
            {}, f"'{name.removeprefix('mechanism__')}' parameter .* 2147483647",
        )
        for mechanism, name in SIZES
        for size in (2**31, 10**30)
    },
    # Their sum, which scikit-learn takes, is NaN: a warning would say that both occur.
    "infinities of both signs": (
        SlicedSketch(**SMALL), {"X": np.vstack([[np.inf, -np.inf], X])}, "contains infinity"
    ),
    **{
        f"{estimator!r}, no GPU": (on_a_device(estimator), {"y": LABELS}, "needs a GPU")
        for estimator in (() if torch.cuda.is_available() else ON_DEVICES)
    },
    **{
        f"{estimator!r}, epsilon=1e12": (
            clone(estimator).set_params(epsilon=1e12), given, "protects nothing"
        )
        for estimator, given in NOISELESS
    },
    **{
        f"{protocol}, masses {k}": (private_distance(protocol), {"masses": masses}, "masses must")
        for protocol in ("triangle", "fedwad")
        for k, masses in enumerate((FailingColumn(), [1e308] * 24))
    },
}  # fmt: skip


@pytest.mark.parametrize("case", FITS)
def test_a_refused_fit_is_not_charged_and_leaves_no_traces(case):
    estimator, given, text = FITS[case]
    budget = PrivacyBudget(float("inf"))
    estimator = clone(estimator).set_params(budget=budget)
    before = dict(vars(estimator))
    refused(lambda: estimator.fit(**{"X": X, **given}), text)
    assert len(budget.history()) == 0
    assert vars(estimator) == before


@pytest.mark.parametrize(
    "stamps",
    [[-1e308, 1e308] * 12, [0, 10**400] * 12, [0.0, 1e-300, 1e300] * 8],
    ids=["far", "beyond float", "span"],
)
def test_times_too_far_apart_are_refused_or_fitted_without_a_warning(stamps):
    budget = PrivacyBudget(float("inf"))
    try:
        trajectory_sampler(**TRAJECTORIES, budget=budget).fit(X, stamps)
    except ValueError as error:
        assert re.search("t must|regularization|apart", str(error))  # noqa: PT017
        assert len(budget.history()) == 0
    else:
        assert len(budget.history()) == 1


# --- what is asked of fitted estimators, of metrics and of made-up data ---------------------------


FLOW = {**SMALL, "conditional": True, "n_steps": 1, "n_particles": 10}
MADE = {
    "sketch": lambda: SlicedSketch(**SMALL).fit(X),
    "classes": lambda: SlicedSketch(**SMALL, conditional=True).fit(X, LABELS),
    "flow": lambda: flow_sampler(**FLOW).fit(X, LABELS),
    "autoencoder": lambda: made(PrivateSWAutoencoder, 2, bounds=(-1, 1), n_steps=1).fit(X),
    "paths": lambda: trajectory_sampler(**TRAJECTORIES).fit(X, TIMES),
    "distance": lambda: private_distance(**SMALL, epsilon=50.0).fit(X),
    "contribution": lambda: ClientContribution(private_distance(**SMALL, epsilon=50.0)).fit(X),
    "law": lambda: trajectories.OrnsteinUhlenbeck.of(n_features=2),
}


@cache
def fitted(name):
    return MADE[name]()


def asked(name, method, *args):
    return lambda: getattr(fitted(name), method)(*args)


INFINITE = np.array([[np.inf, 1.0], [-np.inf, 2.0]])
PATHS = np.zeros((4, 3, 2))
HUGE = np.array([[1e100], [-1e100]])
NO_NUMBERS = (None, SECRET, {}, 1j, [[0.5, None]])
REFUSED = {
    **{
        f"merge with {other!r:.20}": (asked("sketch", "merge", other), "merge|not fitted")
        for other in (None, X, SlicedSketch())
    },
    # A text was quoted, and NaN was answered with NaN.
    **{
        f"{method} at {at!r}": (asked("sketch", method, at), "must hold")
        for method in ("cdf", "quantiles")
        for at in NO_NUMBERS
    },
    # Booleans, and integers that no array can hold, ended in IndexError and OverflowError.
    **{
        f"{method} of {n!r}": (asked("flow", method, n), "n_samples")
        for method in ("sample", "sample_labeled")
        for n in (True, np.bool_(True), 2**31, 10**30, 0, 1.0)
    },
    **{
        f"codes {k}": (asked("autoencoder", "inverse_transform", codes), "cannot be read as numb")
        for k, codes in enumerate(([[SECRET, "a"]], *TABLES.values()))
    },
    # Complex ones were quoted, in full.
    **{
        f"time stamps {k}": (asked("paths", "score", X, stamps), "t must hold numbers or dates")
        for k, stamps in enumerate(([1j * NUMBER, 1.0] * 12, FailingColumn()))
    },
    **{
        f"{name}, parties {k}": (asked(name, method, parties), "must be a sequence of Party")
        for name, method in (("contribution", "contributions"), ("distance", "pairwise_distances"))
        for k, parties in enumerate((3, "ab", iter([])))
    },
    # A sum of infinities of both signs warned.
    "distance of infinities": (
        lambda: metrics.wasserstein_distance(INFINITE, INFINITE), "infinity"
    ),
    **{
        f"decisions {k}": (
            partial(fairness.disparate_impact, column, sensitive_features=[0, 1]),
            "y_pred (has|holds|cannot)",
        )
        for k, column in enumerate(([0.0, np.inf], torch.tensor([0.0, 1.0], requires_grad=True)))
    },
    **{
        f"{make.__name__}({n!r})": (partial(make, n, *more), "n_paths|n_samples")
        for n in (True, np.bool_(True))
        for make, *more in (
            (trajectories.branching_paths, [0.0]), (datasets.make_biased_classification,),
        )
    },
    **{
        f"{name} at {times!r:.20}": (partial(call, times), "times must")
        for times in (1j, 10**400, "2020")
        for name, call in {
            "mean": lambda t: fitted("law").mean(t),
            "covariance": lambda t: fitted("law").covariance(t),
            "branch": lambda t: trajectories.branch_of([[0.0, 0.0]], t),
        }.items()
    },
    **{
        f"{name}, n_projections={n!r}": (partial(call, n_projections=n), "n_projections")
        for n in (2**31, True)
        for name, call in {
            "paths": partial(metrics.path_sliced_wasserstein_distance, PATHS, PATHS),
            "rows": partial(metrics.sliced_wasserstein_distance, X, X),
        }.items()
    },
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_answered_is_refused(case):
    refused(*REFUSED[case])


SLICED = metrics.sliced_wasserstein_distance
# Integers of any type: unsigned and signed ones of 64 bits make floating-point numbers, and
# others wrap around. And numbers whose powers and sums overflowed with a warning.
ANSWERS = {
    "rows, uint8": (lambda: fitted("flow").sample(np.uint8(3)).shape, (3, 2)),
    "rows, uint64": (lambda: fitted("flow").sample(np.uint64(3)).shape, (3, 2)),
    "paths, int8": (lambda: fitted("paths").sample_frame(np.int8(100)).shape, (300, 4)),
    "directions, uint64": (lambda: SLICED(X, X, n_projections=np.uint64(3)), 0.0),
    "a distance far away": (
        lambda: metrics.wasserstein_distance(HUGE, HUGE + 1e100, p=40), pytest.approx(1e100)
    ),
    "a high power": (
        lambda: np.isfinite(SLICED(np.c_[HUGE, HUGE], -np.c_[HUGE, HUGE[::-1]], p=1e300)), True
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", ANSWERS)
def test_numbers_of_any_type_and_size_are_answered(case):
    call, expected = ANSWERS[case]
    assert call() == expected


@pytest.mark.parametrize(
    "changes",
    [{"module": LatentNetwork(latent_dim=10**12)}, {"n_steps": True}, {"device": "tpu"}],
)
def test_retraining_checks_parameters_too(changes):
    """A network of 10^12 inputs was an error of torch."""
    generator = sliced_generator(**SMALL, n_steps=1, n_latents=10).fit(X)
    before = generator.module_
    refused(generator.set_params(**changes).retrain, "parameter of (DPSlicedGen|LatentNetwork)")
    assert generator.module_ is before
