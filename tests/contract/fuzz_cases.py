"""One case of each kind of call: draw what is passed, call, and see that everything holds."""

import math
from collections.abc import Callable, Iterator
from contextlib import chdir, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory, gettempdir
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import strategies as st

from skdpot import ClientContribution, PrivacyBudget, PrivateTrajectorySampler
from tests.contract.fuzz_functions import FUNCTIONS, check_function
from tests.contract.fuzz_harness import Outcome, attempt, check_texts, fingerprint, is_finite
from tests.contract.fuzz_strategies import (
    MARKED,
    MARKER,
    NUMBER,
    chance,
    constants,
    labels,
    numbers_of_rows,
    tables,
    times,
    undeclared,
)
from tests.contract.fuzz_targets import (
    DRAWINGS,
    PURSE,
    READINGS,
    TARGETS,
    Target,
    contribution,
    fitted,
    good_fit,
)

PUBLISHED = ("marked", "marked numbers", "all different", "different texts", "bytes")
POOR = PrivacyBudget(1e-3)  # what hardly anything fits in
MARKS = st.sampled_from(MARKED)
# What a caller declares to be public may be quoted.
DECLARED = (
    *("bounds", "target_bounds", "norm_bound", "classes", "projections", "schedule", "module"),
    *("noise_multiplier", "image_shape", "architecture"),
)

# --- fits -------------------------------------------------------------------------------------


@st.composite
def spoilt(draw: st.DrawFn, target: Target) -> dict[str, Any]:
    """Draw parameters: small ones, some of them replaced by others, usable or not."""
    parameters = dict(target.fresh())
    for name in draw(st.lists(st.sampled_from(sorted(target.variants)), max_size=4)):
        parameters[name] = draw(st.sampled_from(target.variants[name]))
    for _ in range(draw(st.sampled_from((0, 0, 1)))):
        spoiled = draw(st.sampled_from(target.parameters))
        declared = spoiled.rpartition("__")[2] in DECLARED
        values = constants() if declared else st.one_of(*[constants()] * 9, MARKS)
        parameters[spoiled] = draw(values)
        if spoiled in ("mechanism", "protocol", "penalty"):
            parameters = {name: value for name, value in parameters.items() if "__" not in name}
    if "budget" in target.parameters and "budget" not in parameters:
        parameters["budget"] = POOR if draw(chance(10)) else PURSE.budget()
    return parameters


def second_argument(draw: st.DrawFn, target: Target, table: Any) -> tuple[str, Any]:
    """Draw what `fit` takes after X."""
    if target.second == "times":
        return draw(times(table.n_rows))
    if target.second == "targets" and draw(st.booleans()):
        return "real numbers", np.linspace(-1, 1, table.n_rows)
    return draw(labels(table.n_rows, usable=70))


def columns_of_fit(draw: st.DrawFn, target: Target, table: Any) -> tuple[dict[str, str], Any]:
    """Draw the other columns that `fit` takes; names for the report, and values."""
    names, options = {}, {}
    for option in target.options:
        often = option == "sensitive_features"
        if draw(chance(90 if often else 10)):
            drawn = times if option == "t" else labels
            names[option], options[option] = draw(drawn(table.n_rows, usable=80))
    return names, options


def check_fit(draw: st.DrawFn, name: str) -> None:
    """Fit once, and see that everything holds."""
    target = TARGETS[name]
    parameters = draw(spoilt(target))
    table = draw(tables(usable=60))
    y_name, y = second_argument(draw, target, table)
    declared = parameters.get("classes", parameters.get("mechanism__classes"))
    if isinstance(declared, list) and draw(chance(20)):
        y_name, y = "undeclared", undeclared(table.n_rows)
    option_names, options = columns_of_fit(draw, target, table)
    again, html = draw(chance(10)), draw(chance(10))
    estimator = good_fit(name).set_params(**parameters) if again else target.made(**parameters)
    given_rows = fingerprint(table.value)

    def told() -> str:
        changed = {k: v for k, v in parameters.items() if k not in ("budget", "random_state")}
        return f"{name} of {table}, y={y_name}, {option_names}, {changed}, again={again}"

    with explained(told):
        outcome = tried(
            name,
            estimator,
            lambda: estimator.fit(table.value, y, **options),
            due=1,
            private=target.private,
        )
        assert fingerprint(table.value) == given_rows, "X was written to"
        if outcome.error is None:
            check_statement(estimator, budget_of(estimator))
            if target.private and not is_plain(estimator):
                assert not holds_number(vars(estimator)), "an attribute holds a private value"
        if target.private and not is_marked(parameters):
            # Once they are published the classes of y are public, and shown.
            published = outcome.error is None and y_name in PUBLISHED
            check_shown(name, estimator, html=html and not published)
        if outcome.error is None:
            later = attempt(f"{name}, read", lambda: target.check(estimator, table.n_rows))
            assert later.error is None, f"unusable once it is fitted: {later.error!r}"


def is_marked(parameters: dict[str, Any]) -> bool:
    """Whether a parameter holds data: an estimator shows its own parameters."""
    return any(value is one for value in parameters.values() for one in MARKED)


def budget_of(estimator: Any) -> PrivacyBudget | None:
    """Return the budget that calls of an estimator are charged to."""
    budget = getattr(estimator, "budget", None)
    return budget if isinstance(budget, PrivacyBudget) else None


def tried(
    name: str,
    estimator: Any,
    call: Callable[[], Any],
    *,
    due: int | None = 0,
    changes: bool = True,
    **options: Any,
) -> Outcome:
    """Call, and see what was charged; what is refused leaves no traces."""
    before, budget = fingerprint(vars(estimator)), budget_of(estimator)
    charged = 0 if budget is None else len(budget.history())
    outcome = attempt(name, call, **options)
    charges = 0 if budget is None else len(budget.history()) - charged
    if budget is not None and due is not None:
        assert charges == (due if outcome.error is None else 0), f"{name}: {charges} charges"
    if outcome.error is not None or not changes:
        assert fingerprint(vars(estimator)) == before, f"{name} left traces: {outcome.error!r}"
    return outcome


@contextmanager
def explained(told: Callable[[], str]) -> Iterator[None]:
    """Say what was passed where something does not hold."""
    try:
        yield
    except AssertionError as error:
        error.add_note(told())
        raise


def holds_number(value: Any, depth: int = 6) -> bool:
    """Whether the marked number is, as it was given, in something that a fit has left behind."""
    if isinstance(value, torch.nn.Module):
        value = dict(value.state_dict())
    if isinstance(value, torch.Tensor):
        value = value.detach().numpy()
    if isinstance(value, np.ndarray) and value.dtype.kind == "f":
        return bool((np.abs(value - NUMBER) < 1e-6 * NUMBER).any())
    if isinstance(value, str | bytes):
        return MARKER.search(str(value)) is not None
    if depth == 0 or isinstance(value, PrivacyBudget | type):
        return False
    if isinstance(value, dict):
        return any(holds_number(one, depth - 1) for one in value.values())
    if isinstance(value, list | tuple):
        return any(holds_number(one, depth - 1) for one in value)
    return holds_number(vars(value), depth - 1) if hasattr(value, "__dict__") else False


def is_plain(estimator: Any) -> bool:
    """Whether an estimator was fitted with a protocol that adds no noise."""
    return hasattr(estimator, "protocol_") and not estimator.protocol_.is_private


def check_statement(estimator: Any, budget: PrivacyBudget | None) -> None:
    """The statement says what was asked for, and the history agrees."""
    spent = estimator.privacy_spent_
    given = estimator.get_params()
    own_noise = [
        value for name, value in given.items() if name.endswith(("sigma", "noise_multiplier"))
    ]
    if is_plain(estimator) or not getattr(estimator, "private", True):
        assert math.isinf(spent.epsilon)
    elif all(noise is None for noise in own_noise):
        assert spent.epsilon == pytest.approx(float(estimator.epsilon), rel=1e-6)
    if budget is not None and spent.delta == budget.delta and math.isfinite(spent.epsilon):
        assert budget.history()["epsilon"].iloc[-1] <= spent.epsilon * 1.05


def check_shown(name: str, estimator: Any, *, html: bool) -> None:
    """What a notebook shows of an estimator has no private value, whatever became of the fit."""
    shown = [estimator, getattr(estimator, "privacy_spent_", None)]
    texts = [repr(one) for one in shown]
    if html:  # with the fitted attributes
        check_texts(name, [one._repr_html_() for one in shown if one is not None], MARKER)
    check_texts(name, texts)


# --- what fitted estimators are asked ----------------------------------------------------------


asked = partial(tried, changes=False)


def check_reading(draw: st.DrawFn, name: str, method: str, charges: int) -> None:
    """Pass rows to a method of a fitted estimator."""
    estimator = fitted(name)
    width = estimator.n_features_in_
    table = draw(tables(width=draw(st.sampled_from((width, width, width, None)))))
    arguments: tuple[Any, ...] = (table.value,)
    if method == "score":
        # Predictors have the scores of scikit-learn, which are not for us to try.
        plain = "Fair" in name
        y = np.arange(table.n_rows) % 2 if plain else second_argument(draw, TARGETS[name], table)[1]
        arguments += (y,)
    outcome = asked(
        f"{name}.{method}",
        estimator,
        lambda: getattr(estimator, method)(*arguments),
        # None is X: what this estimator has published before is published again.
        due=None if charges and table.value is None else charges,
    )
    with explained(lambda: f"{name}.{method}({table}, ...): {outcome.error!r}"):
        of_one = table.n_rows < 2 and method == "score"  # R² of one row is not defined
        if outcome.error is None and method not in ("publish", "compare") and not of_one:
            value = without_missing(outcome.value) if name == "TableEncoder" else outcome.value
            assert is_finite_or_label(value), value
        if outcome.error is None and table.plain and method in PER_ROW:
            assert len(outcome.value) == table.n_rows


PER_ROW = ("predict", "predict_proba", "decision_function", "inverse_transform", "score_samples")


def is_finite_or_label(value: Any) -> bool:
    """Whether a result is made of finite numbers, or of labels."""
    found = np.asarray(value)
    return found.dtype.kind in "US" or is_finite(found)


def without_missing(rows: Any) -> np.ndarray:
    """Values may be missing in tables: return zeros in their place."""
    return np.where(np.isnan(rows), 0.0, rows)


def check_drawing(draw: st.DrawFn, name: str, method: str) -> None:
    """Ask for so many rows."""
    estimator = fitted(name)
    n_samples, seed = draw(numbers_of_rows()), draw(st.sampled_from((None, 0, *SEEDS)))
    arguments: tuple[Any, ...] = (n_samples, seed)
    if isinstance(estimator, PrivateTrajectorySampler):
        at = draw(st.one_of(st.sampled_from(STAMPS), constants()))
        arguments = (at, n_samples, seed) if method == "sample_marginal" else (n_samples, at, seed)
    if name == "DPTableSynthesizer":
        arguments = (n_samples, draw(st.one_of(st.sampled_from(WANTED), constants())), seed)
    outcome = asked(f"{name}.{method}", estimator, lambda: getattr(estimator, method)(*arguments))
    with explained(lambda: f"{name}.{method}{arguments!r}: {outcome.error!r}"):
        if outcome.error is None:
            rows = outcome.value[0] if isinstance(outcome.value, tuple) else outcome.value
            assert is_finite(without_missing(rows) if name == "DPTableSynthesizer" else rows)
            assert len(rows) % int(n_samples) == 0


SEEDS = ("seed", -1, 2**32, 1.5, np.random.RandomState(0), np.random.default_rng(0), float("nan"))
WANTED = (
    *(None, {}, {"x0": (None, 0.0)}, {"x0": 0.1, "x1": (-0.5, None)}, {"x0": (0.2, -0.2)}),
    *({"x0": None}, {"x2": 1}, {0: 1}, {"x0": "a"}, {"x0": [1, 2]}, {"x0": (1, 2, 3)}),
    *({"x0": float("nan")}, {"x0": (-float("inf"), 5e-324)}, {"x0": 10**400}, {"x1": 1e300}),
)
STAMPS = (None, 0.0, 0.25, 1.0, [0.0, 0.7], [], -1.0, 2.0, [float("nan")], "2020-01-01", ["a"])


def check_sketch_reading(draw: st.DrawFn, method: str) -> None:
    """Read a sketch at whatever positions, levels or labels."""
    sketch = fitted("SlicedSketch")
    at = draw(st.one_of(constants(), tables().map(lambda table: table.value)))
    label = draw(st.one_of(st.none(), st.sampled_from((0, 1, 7)), constants()))
    if method == "table":
        outcome = asked("SlicedSketch.table", sketch, lambda: sketch.table(label))
    elif method == "merge":
        outcome = asked("SlicedSketch.merge", sketch, lambda: sketch.merge(at))
    else:
        read = getattr(sketch, method)
        outcome = asked(f"SlicedSketch.{method}", sketch, lambda: read(at, label=label))
        with explained(lambda: f"{method}({at!r}, label={label!r})"):
            assert outcome.error is not None or is_finite(outcome.value)


def check_file(draw: st.DrawFn, method: str) -> None:
    """Save to, or load from, whatever is passed as a path."""
    sketch = fitted("SlicedSketch")
    path = draw(st.one_of(constants(), st.sampled_from(PATHS)))
    if isinstance(path, int) and not isinstance(path, bool):
        return  # an open file of this process, by its number
    call = sketch.save if method == "save" else type(sketch).load
    with TemporaryDirectory() as directory, chdir(directory):
        asked(f"SlicedSketch.{method}", sketch, lambda: call(path), allowed=(OSError,))


PATHS = ("/nonexistent/sketch.safetensors", gettempdir(), Path(gettempdir()), "a\0b", "/dev/null")


def check_stream(draw: st.DrawFn) -> None:
    """Feed a stream: a chunk that is refused is not added, and the stream goes on."""
    parameters = draw(spoilt(TARGETS["SlicedSketch"]))
    sketch = TARGETS["SlicedSketch"].make(**parameters)
    opened, rows = False, 0
    for _ in range(draw(st.integers(1, 3))):
        table = draw(tables(width=draw(st.sampled_from((2, 2, None)))))
        _, y = draw(labels(table.n_rows, usable=80))
        declared = draw(st.one_of(st.none(), st.none(), st.sampled_from((24, 1)), constants()))
        outcome = tried(
            "SlicedSketch.partial_fit",
            sketch,
            lambda: sketch.partial_fit(table.value, y, n_samples=declared),  # noqa: B023
            due=int(not opened),
            allowed=(AttributeError,) if hasattr(sketch, "statistic_") else (),
        )
        if outcome.error is None:
            opened, rows = True, rows + table.n_rows
        if not is_marked(parameters):
            check_shown("SlicedSketch", sketch, html=False)
    if opened and not hasattr(sketch, "statistic_"):
        outcome = attempt("SlicedSketch.close", sketch.close)
        assert outcome.error is None
        TARGETS["SlicedSketch"].check(sketch, rows)


def check_parties(draw: st.DrawFn, method: str) -> None:
    """Compare with whatever is passed as parties."""
    protocol = draw(st.sampled_from(("sliced", "triangle", "fedwad")))
    name = f"PrivateWassersteinDistance {protocol}"
    estimator = contribution() if method == "contributions" else fitted(name)
    tried = st.one_of(constants(), tables(width=2).map(lambda table: table.value))
    parties: Any = draw(
        st.one_of(
            tried,
            st.lists(tried, max_size=3),
            st.dictionaries(st.sampled_from(("a", "b", "", 3, None)), tried, max_size=3),
        )
    )
    asked(
        f"{type(estimator).__name__}.{method}",
        estimator,
        lambda: getattr(estimator, method)(parties),
    )


def check_contribution(draw: st.DrawFn) -> None:
    """Fit `ClientContribution` with whatever is passed as an estimator."""
    table = draw(tables(usable=70))
    small = TARGETS["PrivateWassersteinDistance sliced"].small
    inner = TARGETS["PrivateWassersteinDistance sliced"].make(**small)
    estimator = ClientContribution(draw(st.one_of(st.just(inner), constants())))
    y = draw(labels(table.n_rows))[1]
    tried("ClientContribution.fit", estimator, lambda: estimator.fit(table.value, y))
    check_shown("ClientContribution", estimator, html=False)


def check_retrain(draw: st.DrawFn) -> None:
    """Train a generator anew with other parameters; nothing is charged."""
    name = f"DPSlicedGenerator {draw(st.sampled_from(('sketch', 'smoothing', 'gradient')))}"
    generator = good_fit(name)
    variants = TARGETS[name].variants
    for parameter in ("n_steps", "learning_rate", "device", "module"):
        if draw(chance(30)):
            usable = st.sampled_from(variants.get(parameter, (None,)))
            generator.set_params(**{parameter: draw(st.one_of(usable, constants()))})
    seed = draw(st.sampled_from(SEEDS))
    if tried(f"{name}.retrain", generator, lambda: generator.retrain(seed)).error is None:
        assert is_finite(generator.sample(3))


# --- all of them -------------------------------------------------------------------------------


@dataclass(frozen=True)
class Case:
    """What is tried, and how often in the default run."""

    check: Callable[[st.DrawFn], None]
    examples: int


def all_cases() -> dict[str, Case]:
    """Return every case by the name of what is called."""
    cases = {
        f"{name}.fit": Case(partial(check_fit, name=name), 12 if "Fair" in name else 40)
        for name in TARGETS
    }
    for name, methods in READINGS.items():
        for method, charges in methods:
            check = partial(check_reading, name=name, method=method, charges=charges)
            cases[f"{name}.{method}"] = Case(check, 25)
    for name, methods in DRAWINGS.items():
        for method in methods:
            check = partial(check_drawing, name=name, method=method)
            cases[f"{name}.{method}"] = Case(check, 25)
    for method in ("cdf", "quantiles", "table", "merge"):
        cases[f"SlicedSketch.{method}"] = Case(partial(check_sketch_reading, method=method), 40)
    for method in ("save", "load"):
        cases[f"SlicedSketch.{method}"] = Case(partial(check_file, method=method), 40)
    for method in ("pairwise_distances", "contributions"):
        cases[method] = Case(partial(check_parties, method=method), 20)
    cases["SlicedSketch.partial_fit"] = Case(check_stream, 40)
    cases["ClientContribution.fit"] = Case(check_contribution, 20)
    cases["DPSlicedGenerator.retrain"] = Case(check_retrain, 15)
    for name, call in FUNCTIONS.items():
        cases[name] = Case(partial(check_function, name=name, call=call), 40)
    return cases


CASES = all_cases()
