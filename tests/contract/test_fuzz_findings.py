"""What the fuzzing found: each test failed before its defect was mended."""

import datetime
import re
import warnings
from fractions import Fraction

import numpy as np
import pytest
import torch
from sklearn.base import clone

from skdpot import (
    ClientContribution,
    DPSlicedFlowSampler,
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
    slicing,
)
from skdpot.exceptions import MessageError
from skdpot.mechanisms import LatentNetwork, TrajectorySketch
from skdpot.privacy import gdp_delta
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
TRACKED = torch.tensor(X, requires_grad=True)
TRAJECTORIES = {**SMALL, "n_particles": 3, "schedule": [(0.5, None, 1)]}


def uncharged(estimator, call, text, kind=(ValueError, TypeError)):
    """The call is refused; nothing is charged, and the estimator stays as it was."""
    budget, before = estimator.budget, dict(vars(estimator))
    charges = len(budget.history())
    with pytest.raises(kind, match=text):
        call()
    assert len(budget.history()) == charges
    assert vars(estimator) == before


@pytest.fixture
def budget():
    return PrivacyBudget(float("inf"))


# --- charged, and then refused ------------------------------------------------------------------


def test_a_boolean_is_no_number_of_particles(budget):
    """It passed the check of integers, was charged, and then broke the generator's call."""
    sampler = trajectory_sampler(**TRAJECTORIES | {"n_particles": True}, budget=budget)
    uncharged(sampler, lambda: sampler.fit(X, TIMES), "'n_particles' parameter")


@pytest.mark.parametrize("name", ["epsilon", "n_projections", "n_bins", "norm_bound"])
def test_booleans_are_no_numbers(name, budget):
    sketch = SlicedSketch(n_projections=2, n_bins=4, budget=budget).set_params(**{name: True})
    uncharged(sketch, lambda: sketch.fit(X), f"'{name}' parameter")


@pytest.mark.parametrize(
    "changes",
    [
        {"architecture": "conv"},
        {"bounds": (-1, 1), "norm_bound": 1.0},
        {"image_shape": (3, 5)},
        {"architecture": (1, 2)},
    ],
)
def test_a_public_autoencoder_that_cannot_be_built_is_not_charged(changes, budget):
    autoencoder = made(PrivateSWAutoencoder, private=False, n_steps=1, budget=budget, **changes)
    uncharged(autoencoder, lambda: autoencoder.fit(X), ".")


@pytest.mark.parametrize("rate", [1e300, 1e39])
@pytest.mark.parametrize(
    "make", [DPSlicedGenerator, PrivateSWAutoencoder, FairPrivateClassifier, FairPrivateRegressor]
)
def test_a_learning_rate_that_no_network_survives_is_refused(make, rate, budget):
    """Training failed, or left a network of NaN, and was charged."""
    network = made(make, learning_rate=rate, n_steps=1, budget=budget)
    uncharged(network, lambda: network.fit(X, LABELS), "'learning_rate' parameter")


@pytest.mark.parametrize("name", ["sigma", "clip", "clip_jacobian", "clip_output"])
def test_an_autoencoder_refuses_noise_beyond_single_precision(name, budget):
    options = {"penalty": "parity", "bounds": (-1, 1), "n_steps": 2, "budget": budget}
    autoencoder = made(PrivateSWAutoencoder, **options, **{name: 1e300})
    uncharged(autoencoder, lambda: autoencoder.fit(X), f"'{name}' parameter")


@pytest.mark.parametrize("bounds", [(-1e300, 1e300), (0, 1e-200)])
def test_bounds_that_no_message_can_carry_are_refused_before_the_sketch(bounds, budget):
    """The fit was charged, and every comparison with it was then refused."""
    distance = private_distance(**SMALL | {"bounds": bounds}, budget=budget)
    uncharged(distance, lambda: distance.fit(X), "bounds", MessageError)


# --- errors that nobody promised, some with private values in them -------------------------------


class Fails:
    """A table of another library, whose conversion fails with a private value in its text."""

    shape = (24, 2)

    def __len__(self):
        return 24

    def __array__(self, dtype=None, copy=None):
        raise RuntimeError(f"row 3 holds {SECRET} and {NUMBER}")


@pytest.mark.parametrize("table", [TRACKED, Fails()], ids=["torch", "foreign"])
def test_tables_that_cannot_be_converted_are_refused_without_a_word_of_theirs(table, budget):
    sketch = SlicedSketch(**SMALL, budget=budget)
    uncharged(sketch, lambda: sketch.fit(table), "cannot be read as numbers", ValueError)
    with pytest.raises(ValueError, match="cannot be read") as refusal:
        sketch.fit(table)
    error = refusal.value
    assert error.__cause__ is None
    assert error.__context__ is None
    assert SECRET not in repr(error)


COLUMN = torch.linspace(0, 1, 24, requires_grad=True)


class FailingColumn(Fails):
    shape = (24,)


@pytest.mark.parametrize("column", [COLUMN, FailingColumn()], ids=["torch", "foreign"])
def test_columns_that_cannot_be_converted_are_refused(column, budget):
    conditional = SlicedSketch(**SMALL, conditional=True, budget=budget)
    uncharged(conditional, lambda: conditional.fit(X, column), "Unknown label type")
    regressor = made(FairPrivateRegressor, n_steps=1, budget=budget)
    uncharged(regressor, lambda: regressor.fit(X, column), "y must hold numbers")
    sampler = trajectory_sampler(**TRAJECTORIES, budget=budget)
    uncharged(sampler, lambda: sampler.fit(X, column), "t must hold numbers or dates")


@pytest.mark.parametrize(
    "stamps",
    [[-1e308, 1e308] * 12, [0, 10**400] * 12, [0.0, 1e-300, 1e300] * 8],
    ids=["far", "beyond float", "span"],
)
def test_times_too_far_apart_are_refused_without_a_warning(stamps, budget):
    sampler = trajectory_sampler(**TRAJECTORIES, budget=budget)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        try:
            sampler.fit(X, stamps)
        except ValueError as error:
            assert re.search("t must|regularization|apart", str(error))  # noqa: PT017
            assert len(budget.history()) == 0
        else:
            assert len(budget.history()) == 1


@pytest.mark.parametrize("other", [None, X, 3, (1, 2), "sketch", SlicedSketch()])
def test_what_is_no_sketch_cannot_be_merged(other):
    sketch = SlicedSketch(**SMALL).fit(X)
    with pytest.raises((TypeError, ValueError), match=r"merge|not fitted"):
        sketch.merge(other)


@pytest.mark.parametrize("method", ["cdf", "quantiles"])
@pytest.mark.parametrize(
    "at", [None, np.nan, SECRET, [SECRET], {}, 1j, [[0.5, None]], datetime.date(2020, 1, 1)]
)
def test_positions_and_levels_are_finite_numbers(method, at):
    """A text was quoted, and NaN was answered with NaN."""
    sketch = SlicedSketch(**SMALL).fit(X)
    with pytest.raises(ValueError, match=r"must hold") as refusal:
        getattr(sketch, method)(at)
    assert SECRET not in repr(refusal.value)
    assert refusal.value.__context__ is None


@pytest.mark.parametrize("label", [np.eye(3), [0, 1], np.array([0, 1]), range(3), dict])
def test_a_label_is_one_label(label):
    sketch = SlicedSketch(**SMALL, conditional=True).fit(X, LABELS)
    with pytest.raises(ValueError, match="label is not a class"):
        sketch.table(label)


@pytest.mark.parametrize("n_samples", [True, np.bool_(True), 2**31, 10**12, 10**30, 0, -1, 1.0])
@pytest.mark.parametrize("method", ["sample", "sample_labeled"])
def test_numbers_of_rows_that_no_sampler_can_draw(method, n_samples):
    """Booleans, and integers that no array can hold, ended in IndexError and OverflowError."""
    sampler = flow_sampler(**SMALL, conditional=True, n_steps=1, n_particles=10)
    sampler.fit(X, LABELS)
    with pytest.raises(ValueError, match="n_samples"):
        getattr(sampler, method)(n_samples)


def test_codes_that_are_no_numbers_are_not_quoted():
    autoencoder = made(PrivateSWAutoencoder, 2, bounds=(-1, 1), n_steps=1).fit(X)
    for codes in ([[SECRET, "a"]], torch.tensor([[0.5, 0.5]], requires_grad=True), Fails()):
        with pytest.raises(ValueError, match="cannot be read as numbers") as refusal:
            autoencoder.inverse_transform(codes)
        assert refusal.value.__context__ is None


@pytest.mark.parametrize("make", [SlicedSketch, DPSlicedFlowSampler, FairPrivateClassifier])
def test_a_parameter_that_is_a_table_is_not_printed_in_the_refusal(make):
    """``SlicedSketch(X)`` in the place of ``SlicedSketch().fit(X)``."""
    estimator = make(epsilon=np.array([[NUMBER, 1.0]]))
    with pytest.raises(ValueError, match="Got an object of type ndarray instead") as refusal:
        estimator.fit(X, LABELS)
    assert "8765" not in str(refusal.value)
    assert refusal.value.__context__ is None


# --- metrics and data sets: public, but an error is one that is documented -----------------------


def test_metrics_refuse_huge_values_without_a_warning():
    """A sum of infinities of both signs warned."""
    rows = np.array([[np.inf, 1.0], [-np.inf, 2.0]])
    paths = rows.reshape(1, 2, 2)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(ValueError, match="infinity"):
            metrics.wasserstein_distance(rows, rows)
        with pytest.raises(ValueError, match="infinity"):
            metrics.path_sliced_wasserstein_distance(paths, paths)


@pytest.mark.parametrize("column", [[0.0, np.inf], torch.tensor([0.0, 1.0], requires_grad=True)])
def test_labels_of_metrics(column):
    with pytest.raises(ValueError, match=r"y_pred (has|holds|cannot)"):
        metrics.selection_rates(column, sensitive_features=[0, 1])


@pytest.mark.parametrize("n", [True, np.bool_(True)])
def test_booleans_are_no_numbers_of_made_up_rows(n):
    with pytest.raises(TypeError, match="n_paths|n_samples"):
        datasets.branching_paths(n, [0.0])
    with pytest.raises(TypeError, match="n_samples"):
        datasets.make_biased_classification(n)


@pytest.mark.parametrize("epsilon", [None, np.nan, [np.nan, 1.0]])
def test_the_profile_of_nothing_is_refused(epsilon):
    with pytest.raises(ValueError, match="epsilon"):
        gdp_delta(epsilon, 1.0)


def test_distances_of_huge_samples_do_not_overflow():
    """Powers overflowed with a warning, and the distance was infinite."""
    rows = np.array([[1e100], [-1e100]])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        far = metrics.sliced_wasserstein_distance(np.c_[rows, rows], -np.c_[rows, rows[::-1]], p=50)
        assert np.isfinite(far)
        assert metrics.wasserstein_distance(rows, rows + 1e100, p=40) == pytest.approx(1e100)
        assert metrics.sliced_wasserstein_distance(X, -X, p=1e300) > 0.0
        with pytest.raises(ValueError, match="of at most 1e\\+150"):
            metrics.wasserstein_distance(rows * 1e60, rows)
        with pytest.raises(ValueError, match="finite positions"):
            slicing.wasserstein_1d([np.nan], [0.0])


def test_a_reference_group_may_be_a_boolean():
    """True is the label 1; pandas did not find it."""
    ratios = metrics.equalized_odds_ratios(
        [1, 1, 0, 0], [1, 1, 1, 1], sensitive_features=[0, 1, 0, 1], reference=True
    )
    assert ratios.to_dict() == {0: 1.0, 1: 1.0}


@pytest.mark.parametrize("times", [1j, 10**400, [np.nan], "2020"])
def test_times_of_made_up_processes_are_finite_numbers(times):
    law = datasets.OrnsteinUhlenbeck.of(n_features=2)
    for call in (law.mean, law.covariance, lambda t: datasets.branch_of([[0.0, 0.0]], t)):
        with pytest.raises(ValueError, match="times must"):
            call(times)


def test_time_stamps_that_cannot_be_read_are_not_quoted():
    """Complex ones were, in full."""
    sampler = trajectory_sampler(**TRAJECTORIES).fit(X, TIMES)
    for stamps in ([1j * NUMBER, 1.0] * 12, FailingColumn()):
        with pytest.raises(ValueError, match="t must hold numbers or dates") as refusal:
            sampler.score(X, stamps)
        assert refusal.value.__context__ is None


@pytest.mark.parametrize("size", [np.uint8(3), np.uint64(3)])
def test_numbers_of_rows_of_any_integer_type(size):
    """Unsigned 64-bit integers and signed ones make floating-point numbers."""
    sampler = flow_sampler(**SMALL, conditional=True, n_steps=1, n_particles=10)
    assert sampler.fit(X, LABELS).sample(size).shape == (3, 2)


def test_a_fraction_is_no_parameter():
    with pytest.raises(ValueError, match="'epsilon' parameter"):
        SlicedSketch(epsilon=Fraction(1, 2)).fit(X)


def test_numbers_of_directions_that_take_for_ever():
    paths = np.zeros((4, 3, 2))
    for n_projections in (2**31, 10**12, True, 1.5):
        with pytest.raises((ValueError, TypeError), match="n_projections"):
            metrics.path_sliced_wasserstein_distance(paths, paths, n_projections=n_projections)
        with pytest.raises((ValueError, TypeError), match="n_projections"):
            metrics.sliced_wasserstein_distance(X, X, n_projections=n_projections)
    assert metrics.sliced_wasserstein_distance(X, X, n_projections=np.uint64(3)) == 0.0


@pytest.mark.parametrize("times", [[], [[0.0, 0.5], [0.5, 1.0]]])
def test_paths_are_made_at_times_along_one_axis(times):
    with pytest.raises(ValueError, match="times must have shape"):
        datasets.branching_paths(3, times)


def test_points_and_paths_of_made_up_data():
    with pytest.raises(ValueError, match="points must hold finite numbers"):
        datasets.branch_of(TRACKED, 0.5)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert datasets.branch_of([[0.0, 1e300]], 0.5) == 0
        with pytest.raises(ValueError, match="infinity"):
            datasets.one_point_a_person([[[np.inf], [-np.inf]]], [0.0, 1.0])


NARROW = {"n_steps": np.int8(100), "latent_dim": np.uint8(20), "n_projections": np.uint64(3)}


@pytest.mark.parametrize("name", NARROW)
@pytest.mark.parametrize("make", [DPSlicedGenerator, PrivateSWAutoencoder])
def test_narrow_integers_are_refused(make, name, budget):
    """Products with them wrapped around or were no integers, once the fit was charged."""
    network = made(
        make,
        budget=budget,
        **({"penalty": "prior"} if make is PrivateSWAutoencoder else {}),
        **{name: NARROW[name]},
    )
    uncharged(network, lambda: network.fit(X), r"only int64, float32 and float64")


@pytest.mark.parametrize("value", [np.float16(1), np.longdouble(1)])
def test_narrow_floating_point_numbers_are_refused(value, budget):
    """In half precision a sensitivity of 2 C is wrong by up to a thousandth."""
    classifier = made(FairPrivateClassifier, clip_loss=value, n_steps=1, budget=budget)
    uncharged(classifier, lambda: classifier.fit(X, LABELS), r"only int64, float32 and float64")


def test_sizes_of_a_sketch_may_be_integers_of_numpy(budget):
    """Unsigned and signed ones of 64 bits make floating-point numbers."""
    sizes = {"n_projections": np.int64(2), "n_bins": np.int64(4)}
    sketch = SlicedSketch(bounds=(-1, 1), conditional=True, budget=budget, **sizes).fit(X, LABELS)
    assert sketch.statistic_.shape == (2, 2, 4)


def test_values_of_rows_that_are_too_far_away():
    distance = private_distance(**SMALL, epsilon=50.0).fit(X)
    with pytest.raises(ValueError, match=r"at most 1e\+150"):
        distance.score_samples([[1e300, 0.0], [0.0, 0.0]])


@pytest.mark.parametrize("size", [2**31, 10**12, 10**30])
@pytest.mark.parametrize(
    ("mechanism", "name"),
    [
        ("sketch", "n_particles"),
        ("sketch", "n_steps"),
        ("sketch", "mechanism__n_projections"),
        ("resample", "mechanism__n_projections"),
        ("resample", "mechanism__batch_size"),
        ("presample", "mechanism__n_projections"),
    ],
)
def test_sizes_that_no_array_has_are_refused(mechanism, name, size, budget):
    """They were charged, and then ended in OverflowError."""
    sampler = flow_sampler(mechanism, budget=budget).set_params(**{name: size})
    name = name.removeprefix("mechanism__")
    uncharged(sampler, lambda: sampler.fit(X), f"'{name}' parameter .* 2147483647")


def test_huge_codes_are_decoded_without_a_warning():
    """Their norms overflowed."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for normalize in (True, False):
            options = {"bounds": (-1, 1), "n_steps": 1, "normalize_codes": normalize}
            autoencoder = made(PrivateSWAutoencoder, 2, **options).fit(X)
            assert autoencoder.architecture_.normalize_codes is normalize
            assert np.isfinite(autoencoder.inverse_transform([[1e308, -1e308]])).all()


@pytest.mark.parametrize("parties", [torch.nn.Linear(1, 1), 3, "ab", None, iter([])])
def test_what_is_no_collection_of_parties(parties):
    distance = private_distance(**SMALL, epsilon=50.0)
    reference = ClientContribution(distance).fit(X)
    with pytest.raises(TypeError, match="must be a sequence of Party"):
        reference.contributions(parties)
    with pytest.raises(TypeError, match="must be a sequence of Party"):
        distance.pairwise_distances(parties)


def test_numbers_of_made_up_rows_of_any_integer_type():
    """Remainders of unsigned integers of 64 bits were floating-point numbers."""
    assert datasets.branching_paths(np.uint64(5), [0.0])[0].shape == (5, 1, 2)
    assert datasets.make_biased_classification(np.uint8(200), n_core=np.int8(4))[0].shape[0] == 200


def test_an_epsilon_whose_square_no_float_holds(budget):
    """OverflowError, from a cap that is an integer of 600 digits."""
    sketch = SlicedSketch(**SMALL, epsilon=1e300, budget=budget)
    uncharged(sketch, lambda: sketch.fit(X), ".")


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
@pytest.mark.parametrize(
    "estimator",
    [
        SlicedSketch(),
        DPSlicedFlowSampler(),
        flow_sampler("resample"),
        flow_sampler("presample"),
        DPSlicedGenerator(),
        sliced_generator("smoothing"),
        sliced_generator("gradient"),
        PrivateTrajectorySampler(TrajectorySketch()),
        private_distance(),
    ],
    ids=repr,
)
def test_a_device_that_is_not_there_is_refused_before_the_charge(estimator, budget):
    """Where only the network or the flow runs on it, it was looked for once all was paid."""
    device = next(name for name in estimator.get_params() if name.endswith("device"))
    chosen = clone(estimator).set_params(**{device: "cuda"}, epsilon=50.0, budget=budget)
    uncharged(chosen, lambda: chosen.fit(X, LABELS), "needs a GPU")


def test_long_tables_of_any_integer_number_of_paths():
    """100 paths at 3 times wrapped around in 8 bits."""
    sampler = trajectory_sampler(**TRAJECTORIES).fit(X, TIMES)
    assert sampler.sample_frame(np.int8(100)).shape == (300, 4)


def test_infinities_of_both_signs_do_not_warn(budget):
    """Their sum, which scikit-learn takes, is NaN: a warning would say that both occur."""
    rows = X.copy()
    rows[0] = np.inf, -np.inf
    sketch = SlicedSketch(**SMALL, budget=budget)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        uncharged(sketch, lambda: sketch.fit(rows), "contains infinity")


@pytest.mark.parametrize(
    "estimator",
    [
        made(FairPrivateRegressor, alpha=0.0, n_steps=2, batch_fraction=1.0),
        made(PrivateSWAutoencoder, n_steps=2, sampling="without_replacement"),
        sliced_generator("gradient", n_steps=2),
        trajectory_sampler("mfld", n_particles=3, schedule=[(1e-4, None, 2)]),
        trajectory_sampler(
            "mfld", n_particles=3, schedule=[(1e-4, None, 2)], bounds=(-1, 1), warm_start="mean"
        ),
        PrivateScaler(),
        SlicedSketch(),
        made(FairPrivateClassifier, batch_fraction=1.0, n_steps=3, n_releases=2),
        made(FairPrivateClassifier, alpha=0.0, tune_threshold=True, batch_fraction=1.0, n_steps=2),
    ],
    ids=repr,
)
def test_an_epsilon_for_which_no_noise_can_be_drawn_is_refused_before_the_charge(estimator, budget):
    """Private bounds, tables of outputs and histograms found it out once all was paid."""
    chosen = clone(estimator).set_params(epsilon=1e12, budget=budget)
    grouped = {"sensitive_features": LABELS} if hasattr(chosen, "alpha") else {}
    y = LABELS if isinstance(chosen, FairPrivateClassifier) else TIMES
    uncharged(chosen, lambda: chosen.fit(X, y, **grouped), "protects nothing")


def test_exact_bounds_of_huge_targets(budget):
    """Without privacy, quantiles of both signs overflowed with a warning, after the charge."""
    regressor = made(
        FairPrivateRegressor,
        alpha=0.0,
        epsilon=float("inf"),
        n_steps=1,
        batch_fraction=1.0,
        budget=budget,
    )
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        predicted = regressor.fit(X, [1e308, -1e308] * 12).predict(X)
    assert np.isfinite(predicted).all()


@pytest.mark.parametrize(
    ("mechanism", "name"),
    [
        ("sketch", "clip_loss"),
        ("sketch", "clip_output"),
        ("ranks", "clip_loss"),
        ("ranks", "clip_output"),
        ("ranks", "clip_jacobian"),
    ],
)
def test_clipping_norms_may_be_large_integers(mechanism, name, budget):
    """Integers that fit in no 64 bits are floating-point numbers to nobody but Python."""
    regressor = made(
        FairPrivateRegressor,
        mechanism=mechanism,
        alpha=0.5,
        epsilon=float("inf"),
        n_steps=2,
        n_releases=1,
        n_projections=2,
        batch_fraction=1.0,
        budget=budget,
    ).set_params(**{f"mechanism__{name}": 10**30})
    regressor.fit(X, X[:, 0], sensitive_features=LABELS)
    assert np.isfinite(regressor.predict(X)).all()


@pytest.mark.parametrize("masses", [[SECRET] * 24, FailingColumn(), [1e308] * 24])
@pytest.mark.parametrize("protocol", ["triangle", "fedwad"])
def test_weights_that_are_no_numbers_are_not_quoted(protocol, masses):
    """Texts were."""
    distance = private_distance(protocol)
    with pytest.raises(ValueError, match="masses must be finite") as refusal:
        distance.fit(X, masses=masses)
    assert SECRET not in repr(refusal.value)
    assert refusal.value.__context__ is None


def test_scores_of_rows_that_are_too_far_away():
    autoencoder = made(PrivateSWAutoencoder, 2, bounds=(-1, 1), n_steps=1).fit(X)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(ValueError, match="squared errors are not finite"):
            autoencoder.score([[1e200, 0.0]])


@pytest.mark.parametrize(
    "changes",
    [{"module": LatentNetwork(latent_dim=10**12)}, {"n_steps": True}, {"device": "tpu"}],
)
def test_retraining_checks_parameters_too(changes):
    """A network of 10^12 inputs was an error of torch."""
    generator = sliced_generator(**SMALL, n_steps=1, n_latents=10).fit(X)
    before = generator.module_
    with pytest.raises(ValueError, match="parameter of (DPSlicedGenerator|LatentNetwork)"):
        generator.set_params(**changes).retrain()
    assert generator.module_ is before
