"""Steps that would learn from private rows, keep or quote them: refused, and warned of in a fit."""

import math
import warnings
from contextlib import suppress

import numpy as np
import pandas as pd
import polars as pl
import pytest
from joblib import Memory
from sklearn.base import clone
from sklearn.compose import ColumnTransformer
from sklearn.decomposition import PCA
from sklearn.ensemble import VotingClassifier
from sklearn.feature_extraction.image import PatchExtractor
from sklearn.feature_selection import SelectKBest
from sklearn.frozen import FrozenEstimator
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import FeatureUnion, Pipeline, make_pipeline
from sklearn.preprocessing import (
    Binarizer,
    FunctionTransformer,
    MinMaxScaler,
    Normalizer,
    OneHotEncoder,
    OrdinalEncoder,
    StandardScaler,
)
from sklearn.utils import all_estimators

from skdpot import (
    FairPrivateClassifier,
    PrivacyBudget,
    PrivateScaler,
    PrivateSWAutoencoder,
    SlicedSketch,
    TableEncoder,
    TableSchema,
    check_pipeline,
)
from skdpot.exceptions import PrivacyWarning
from skdpot.preprocessing import NumericColumn, finite_rows
from skdpot.privacy import earlier_steps
from skdpot.privacy.pipelines import learns
from skdpot.privacy.spent import total_spent
from tests.flat_options import made, private_distance

RNG = np.random.default_rng(0)
X = RNG.uniform(-1, 1, (600, 3))
Y = (X[:, 0] > 0).astype(int)
QUICK = made(FairPrivateClassifier, alpha=0.0, batch_fraction=1.0, n_steps=2)
BUDGET = PrivacyBudget(100.0)
SKETCH = SlicedSketch(bounds=(-6, 6), n_projections=3, budget=BUDGET)
CATEGORIES = [["a", "b"]] * 2
KNOWN = TableSchema([NumericColumn(f"x{j}", lower=-6, upper=6) for j in range(3)])
ENCODER = OneHotEncoder(categories=CATEGORIES, handle_unknown="ignore", sparse_output=False)
IMPUTER = SimpleImputer(strategy="constant", fill_value=0.0, keep_empty_features=True)
ORDINAL = OrdinalEncoder(
    categories=CATEGORIES, handle_unknown="use_encoded_value", unknown_value=-1
)

LEARN = {
    "StandardScaler": StandardScaler(),
    "PCA": PCA(2),
    "SimpleImputer": SimpleImputer(),
    "SelectKBest": SelectKBest(k=2),
    "a nested PCA": make_pipeline(FunctionTransformer(), make_pipeline("passthrough", PCA(2))),
    "a PCA in a union": FeatureUnion([("a", PCA(2)), ("b", "passthrough")]),
    "a PCA of columns": ColumnTransformer([("c", PCA(1), [0, 1])], remainder="passthrough"),
    "the remainder, by PCA": ColumnTransformer([("c", "passthrough", [0])], remainder=PCA(1)),
}
CHECK = FunctionTransformer(finite_rows)
FROZEN = FrozenEstimator(StandardScaler().fit(X[::-1] * 2))
LEARN_NOTHING = {
    "function": FunctionTransformer(np.tanh),
    "normalizer": make_pipeline(CHECK, Normalizer()),
    "passthrough": "passthrough",
    "frozen": make_pipeline(CHECK, FROZEN),
    "nested": make_pipeline(
        CHECK, FunctionTransformer(np.tanh), make_pipeline("passthrough", Normalizer())
    ),
    "columns": make_pipeline(
        CHECK, ColumnTransformer([("c", Normalizer(), [0, 1])], remainder="passthrough"), FROZEN
    ),
    "after a private step": make_pipeline(PrivateScaler(budget=BUDGET), Normalizer(), Binarizer()),
    "constants for missing values": IMPUTER,
}


def kept_by(encoder, rows):
    return {name: str(value) for name, value in vars(clone(encoder).fit(rows)).items()}


@pytest.mark.parametrize("name", LEARN)
@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
def test_a_step_that_learns_without_noise_is_refused_and_warned_of(name, after):
    private = make_pipeline(PrivateScaler(), LEARN[name]) if after else None
    pipeline = private or make_pipeline(LEARN[name], SKETCH)
    step = "PCA" if "PCA" in name else name
    with pytest.raises(ValueError, match=f"not private as a whole: {step} would learn"):
        check_pipeline(pipeline)
    with pytest.warns(PrivacyWarning, match=f"not private as a whole: {step} would learn"):
        pipeline.fit(X, Y)
    with pytest.raises(ValueError, match=f"{step} would learn"):
        check_pipeline(pipeline)


@pytest.mark.parametrize("name", LEARN_NOTHING)
def test_a_step_that_learns_nothing_is_fine(name):
    pipeline = make_pipeline(LEARN_NOTHING[name], clone(SKETCH))
    assert check_pipeline(pipeline) is pipeline
    assert check_pipeline(quietly(pipeline.fit, X)) is pipeline


@pytest.mark.parametrize("encoder", [ENCODER, ORDINAL, IMPUTER], ids=lambda e: type(e).__name__)
def test_what_is_declared_is_not_learned(encoder):
    """The same is kept whatever the rows are: unknown values, missing ones, one value alone."""
    tables = [
        np.array(rows, dtype=object)
        for rows in ([["a", "b"]] * 4, [["b", "b"], ["zz", "a"]], [["q", "q"]], [["a", "zz"]] * 9)
    ]
    if encoder is IMPUTER:
        tables = [
            np.array(rows) for rows in ([[1.0, 2.0]], [[math.nan] * 2], [[math.nan, 1.0]] * 3)
        ]
    assert len({str(kept_by(encoder, rows)) for rows in tables}) == 1
    assert not learns(encoder)


@pytest.mark.parametrize(
    "changed",
    [
        *(
            clone(encoder).set_params(**{name: value})
            for encoder, name, value in (
                (ENCODER, "categories", "auto"),
                (ENCODER, "handle_unknown", "error"),
                (ENCODER, "handle_unknown", "warn"),
                (ENCODER, "drop", "first"),
                (ENCODER, "min_frequency", 2),
                (ENCODER, "max_categories", 2),
                (ENCODER, "sparse_output", True),
                (ORDINAL, "categories", "auto"),
                (IMPUTER, "keep_empty_features", False),
                (IMPUTER, "strategy", "median"),
                (IMPUTER, "add_indicator", True),
            )
        ),
        OrdinalEncoder(categories=CATEGORIES),
        type("Encoder", (OneHotEncoder,), {})(**ENCODER.get_params()),
    ],
)
def test_what_is_not_declared_is_learned(changed):
    assert learns(changed)
    with pytest.raises(ValueError, match="would learn"):
        check_pipeline(make_pipeline(changed, SKETCH))


def test_an_inverse_is_not_tried_on_private_rows():
    both = {"func": np.exp, "inverse_func": np.sqrt}
    with pytest.raises(ValueError, match="check_inverse=False"):
        check_pipeline(make_pipeline(FunctionTransformer(**both), SKETCH))
    check_pipeline(make_pipeline(FunctionTransformer(**both, check_inverse=False), SKETCH))


@pytest.mark.parametrize("place", ["inside", "outside", "in a union", "an object"])
def test_a_memory_would_keep_rows_in_files(place, tmp_path):
    """With their noise taken off again: the rows before a private step can be computed."""
    memory = Memory(tmp_path, verbose=0) if place == "an object" else str(tmp_path)
    steps = make_pipeline(PrivateScaler(budget=BUDGET), FunctionTransformer(), memory=memory)
    union = FeatureUnion([("a", steps), ("b", "passthrough")])
    first = union if place == "in a union" else steps
    pipeline = make_pipeline(first, clone(SKETCH))
    if place == "outside":
        pipeline = make_pipeline("passthrough", clone(SKETCH), memory=memory)
    for given in (pipeline, clone(pipeline)):
        with pytest.raises(ValueError, match="`memory` writes the rows .* pass memory=None"):
            check_pipeline(given)
    with pytest.warns(PrivacyWarning, match="`memory` writes the rows"):
        pipeline.fit(X)


SECRETS = "Zq9SECRET", "7391846255", "1987-03-21", "1987, 3"
SECRET_TEXT, SECRET_NUMBER, SECRET_DAY = SECRETS[0], float(SECRETS[1]), pd.Timestamp(SECRETS[2])
VALUES = [SECRET_TEXT, SECRET_TEXT.encode(), np.str_(SECRET_TEXT), [SECRET_TEXT], {SECRET_TEXT: 1}]
VALUES += [SECRET_NUMBER * 1e290, -SECRET_NUMBER, int(SECRETS[1] * 40), complex(SECRET_NUMBER, 1.0)]
VALUES += [SECRET_DAY, SECRET_DAY.tz_localize("UTC"), np.inf, np.nan, None, pd.NaT, True]


def bad_rows():
    """Yield tables of two columns with a value, or a type of a column, that does not belong."""
    numbers = pd.DataFrame({"a": np.arange(8.0), "b": np.arange(8.0)})
    for place, value in enumerate(VALUES):
        table = numbers.astype(object)
        table.iat[3, place % 2] = value
        yield (table, table.to_numpy(), table.to_numpy().tolist())[place % 3]
        yield table.to_numpy()
    texts = numbers.astype(int).astype(str)
    texts.iat[3, 0] = SECRET_TEXT
    yield from (texts.astype(kind) for kind in ("object", "string", "category"))
    yield texts.to_numpy().astype(str)
    yield numbers.assign(a=SECRET_DAY)
    yield numbers.assign(a=SECRET_DAY - pd.Timestamp(0))
    yield pl.DataFrame({"a": [*"1234567", SECRET_TEXT], "b": np.arange(8.0)})
    yield numbers.to_numpy() * complex(SECRET_NUMBER, 1.0)
    yield numbers.to_numpy()[None] + SECRET_NUMBER
    yield pd.DataFrame({"a": [SECRET_NUMBER] * 8})


def told(act, rows):
    """Return all that an act says: its warnings, its error, and what that hangs on."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            act(rows)
            error = None
        except Exception as raised:
            error = raised
    texts = [str(one.message) for one in caught]
    while error is not None:
        texts += [str(error), repr(error)]
        error = error.__cause__ or error.__context__
    return texts


def accepted(step):
    try:
        return bool(check_pipeline(make_pipeline(step, SKETCH)))
    except ValueError:
        return False


def steps_of_scikit_learn():
    declared = [ENCODER, ORDINAL, IMPUTER, clone(IMPUTER).set_params(fill_value="x")]
    numeric = {"categories": [[0.0, 1.0]] * 2}
    declared += [clone(one).set_params(**numeric) for one in (ENCODER, ORDINAL)]
    public = np.arange(6.0).reshape(3, 2)
    frozen = [FrozenEstimator(one.fit(public)) for one in (StandardScaler(), MinMaxScaler())]
    frozen.append(FrozenEstimator(PrivateScaler(budget=BUDGET).fit(X[:, :2])))
    made = []
    for _, kind in all_estimators("transformer"):
        with suppress(TypeError):
            made.append(kind())
    return [*declared, *frozen, FunctionTransformer(np.log), *made]


@pytest.mark.slow
def test_no_accepted_step_quotes_a_bad_row():
    """Of scikit-learn's own as many as there are: what a new release adds is tried too."""
    bare, behind, rows = set(), set(), list(bad_rows())
    for step in steps_of_scikit_learn():
        for names, tried in ((bare, step), (behind, make_pipeline(CHECK, step))):
            if not accepted(tried):
                continue
            names.add(type(step).__name__)
            for whole in (tried, ColumnTransformer([("c", tried, [0, 1])])):
                for given in rows:
                    said = " ".join(told(lambda X, p=whole: clone(p).fit(X).transform(X), given))
                    assert not [secret for secret in SECRETS if secret in said], (whole, said)
    assert {"FunctionTransformer", "OneHotEncoder", "SimpleImputer", "FrozenEstimator"} <= bare
    assert {"Normalizer", "Binarizer"} <= behind - bare


@pytest.mark.parametrize(
    "step",
    [
        Normalizer(),
        FunctionTransformer(np.abs, validate=True),
        FROZEN,
        make_pipeline(IMPUTER, Binarizer()),
        make_pipeline(CHECK, FunctionTransformer(str), Normalizer()),
        FeatureUnion([("a", CHECK), ("b", Normalizer())]),
        make_pipeline(
            ColumnTransformer([("c", CHECK, [0])], remainder="passthrough"), Normalizer()
        ),
    ],
)
def test_a_step_that_quotes_needs_checked_rows(step):
    with pytest.raises(ValueError, match=r"may quote .*FunctionTransformer\(skdpot.*finite_rows\)"):
        check_pipeline(make_pipeline(step, SKETCH))


def test_a_single_name_of_a_column_makes_its_step_show_the_column():
    table = np.array([["x"], [SECRET_TEXT]])
    encoder = clone(ENCODER).set_params(categories=[["x", "y"]])
    columns = ColumnTransformer([("c", encoder, 0)])
    assert any(SECRET_TEXT in text for text in told(columns.fit_transform, table))
    with pytest.raises(ValueError, match=r"single name.*write \[0\]"):
        check_pipeline(make_pipeline(columns, SKETCH))
    check_pipeline(make_pipeline(columns.set_params(transformers=[("c", encoder, [0])]), SKETCH))


def test_finite_rows_are_returned_as_they_are():
    table = pd.DataFrame({"a": [1, 2], "b": [0.5, 3.0]}, index=["p", "q"])
    pd.testing.assert_frame_equal(finite_rows(table), table.astype(float))
    assert finite_rows(X.astype(np.float32)).dtype == np.float32
    for bad in (np.nan, np.inf, SECRET_TEXT):
        with pytest.raises(ValueError, match="X") as caught:
            finite_rows([[0.0, bad]])
        assert SECRET_TEXT not in str(caught.value)
        assert caught.value.__context__ is None


PAIRS = {
    "steps": lambda one, two: make_pipeline(one, two),
    "nested": lambda one, two: make_pipeline("passthrough", make_pipeline(one, two)),
    "columns, then a step": lambda one, two: make_pipeline(
        ColumnTransformer([("c", one, [0])], remainder="passthrough"), two
    ),
    "a union, then a step": lambda one, two: make_pipeline(
        FeatureUnion([("u", one), ("v", "passthrough")]), two
    ),
    "a step in between": lambda one, two: make_pipeline(one, FunctionTransformer(), two),
}


@pytest.mark.parametrize("name", PAIRS)
def test_private_steps_share_a_budget_or_are_told_their_sum(name):
    def pair(first, second):
        scaler, sketch = PrivateScaler(epsilon=1.0, budget=first), clone(SKETCH)
        return PAIRS[name](scaler, sketch.set_params(epsilon=2.0, budget=second))

    shared = pair(BUDGET, BUDGET)
    assert check_pipeline(check_pipeline(shared).fit(X)) is shared
    for first, second in ((None, None), (BUDGET, None), (BUDGET, PrivacyBudget(9.0))):
        pipeline = pair(first, second)
        with pytest.warns(
            PrivacyWarning, match="do not share a budget.*up to epsilon=3 at delta=2e"
        ):
            check_pipeline(pipeline)
        with pytest.warns(PrivacyWarning, match="spent epsilon=1 on the same people") as caught:
            pipeline.fit(X)
        if first is second:
            total = total_spent(pipeline).epsilon
            assert [f"epsilon={total:.3g}" in str(one.message) for one in caught] == [True]


def test_private_columns_beside_each_other_are_one_release():
    def columns(budget):
        scalers = [(f"c{j}", PrivateScaler(epsilon=1.0, budget=budget), [j]) for j in range(3)]
        return ColumnTransformer(scalers)

    check_pipeline(columns(BUDGET)).fit(X)
    for act in (check_pipeline, lambda made: made.fit(X)):
        with pytest.warns(PrivacyWarning, match="up to epsilon=3 at"):
            act(columns(None))


@pytest.mark.parametrize(
    ("part", "message"),
    [
        (PrivateScaler(epsilon=math.inf), "PrivateScaler has no noise"),
        (made(PrivateSWAutoencoder, private=False), "PrivateSWAutoencoder has no noise"),
        (private_distance("triangle"), "PrivateWassersteinDistance has no noise"),
        (made(FairPrivateClassifier, epsilon=math.inf), "FairPrivateClassifier has no noise"),
        (PatchExtractor(), "several rows of one"),
        (LogisticRegression(), "LogisticRegression would learn"),
        (GaussianProcessRegressor(), "would learn"),  # predicts without a fit
        (VotingClassifier([("a", QUICK)]), "VotingClassifier would learn"),
        (GridSearchCV(SKETCH, {}), "GridSearchCV would learn"),
        (ColumnTransformer([("c", "passthrough", lambda rows: [0])]), "function of the private"),
    ],
)
def test_other_leaks_are_named(part, message):
    with pytest.raises(ValueError, match=message):
        check_pipeline(Pipeline([("first", part), ("last", SKETCH)]))


def test_all_leaks_are_named_at_once_and_what_changed_since_the_fit():
    quietly(clone(SKETCH).fit, StandardScaler().fit_transform(X))  # outside of a pipeline
    with pytest.raises(ValueError, match=r"StandardScaler .*PCA .*LogisticRegression "):
        check_pipeline(make_pipeline(StandardScaler(), PCA(2), LogisticRegression()))
    with pytest.raises(TypeError, match="takes an estimator or a pipeline.*got ndarray"):
        check_pipeline(X)
    columns = ColumnTransformer([("c", FunctionTransformer(), [0, 1])]).fit(X)
    columns.set_params(c=PCA(1))
    with pytest.raises(ValueError, match="PCA would learn"):
        check_pipeline(make_pipeline(columns, SKETCH))


class Uncloneable(FunctionTransformer):
    """Changes its parameter in the constructor, which scikit-learn cannot clone."""

    def __init__(self, columns=(0, 1)):
        super().__init__()
        self.columns = list(columns)


def test_a_step_that_cannot_be_cloned_is_told_and_no_error_after_the_charge():
    budget = PrivacyBudget(2.0)
    pipe = make_pipeline(Uncloneable(), PrivateScaler(epsilon=2.0, budget=budget))
    with pytest.warns(PrivacyWarning, match="Uncloneable cannot be cloned"):
        pipe.fit(X)
    assert len(budget.history()) == 1


# Steps that are fitted one by one: the second one knows of the first by its rows.


def quietly(act, *args):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        return act(*args)


@pytest.mark.parametrize("container", ["default", "pandas"])
def test_a_chain_of_steps_is_added_up(container):
    """Unless one budget pays for all; no step in between hides one without privacy."""

    def steps(*epsilons, **options):
        rows = X
        for epsilon in epsilons:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                scaler = PrivateScaler(epsilon=epsilon, **options)
                rows = scaler.set_output(transform=container).fit_transform(rows)
        return rows

    shared = PrivacyBudget(4.0)
    quietly(clone(SKETCH).set_params(budget=shared).fit, steps(1.0, budget=shared))
    assert len(shared.history()) == 2
    for rows, message in (
        (steps(1.0, 1.5), "spent epsilon=1 and 1.5 on"),
        (steps(1.0, budget=shared), "spent epsilon=1 on"),
        (steps(math.inf, 1.0), "nothing protects them"),
    ):
        for last in (clone(SKETCH), make_pipeline("passthrough", clone(SKETCH))):
            with pytest.warns(PrivacyWarning, match=message):
                last.fit(rows)
        with pytest.warns(PrivacyWarning, match=message):
            clone(SKETCH).set_params(budget=PrivacyBudget(1.0)).fit(rows)


def test_other_rows_do_not_warn_and_memory_ends_with_the_rows():
    scaler = PrivateScaler().fit(X)
    before = len(earlier_steps._ORIGINS)
    quietly(clone(SKETCH).fit, scaler.transform(X))
    scaled = scaler.fit_transform(X)
    assert len(earlier_steps._ORIGINS) == before + 1
    del scaled
    assert len(earlier_steps._ORIGINS) == before


@pytest.mark.parametrize("container", ["default", "pandas"])
def test_an_encoder_that_releases_nothing_does_not_break_the_chain(container):
    encoder = TableEncoder(KNOWN).set_output(transform=container)
    pipeline = make_pipeline(PrivateScaler(epsilon=1.0), encoder, clone(SKETCH))
    with pytest.warns(PrivacyWarning, match="spent epsilon=1 on .* together with this fit"):
        pipeline.fit(X)
    before = len(earlier_steps._ORIGINS)
    rows = quietly(clone(encoder).fit_transform, X)
    assert len(earlier_steps._ORIGINS) == before
    quietly(clone(SKETCH).fit, rows)
