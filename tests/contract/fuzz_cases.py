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
from sklearn.base import clone, is_classifier, is_regressor

from skdpot import ClientContribution, DPTableSynthesizer, PrivacyBudget
from skdpot.preprocessing import TableEncoder
from tests.contract.fuzz_functions import FUNCTIONS, arguments, check_function, is_number
from tests.contract.fuzz_harness import Outcome, attempt, check_texts, fingerprint
from tests.contract.fuzz_strategies import (
    CONSTANTS,
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
    OBJECTS,
    TARGETS,
    Target,
    check_answers,
    fitted,
    good_fit,
    purse,
)

PUBLISHED = ("marked", "marked numbers", "all different", "different texts", "bytes")
POOR = PrivacyBudget(1e-3)  # what hardly anything fits in
# What a caller declares to be public may be quoted.
DECLARED = (
    *("bounds", "target_bounds", "norm_bound", "classes", "projections", "schedule", "module"),
    *("noise_multiplier", "image_shape", "architecture"),
)

# --- fits -------------------------------------------------------------------------------------


@st.composite
def spoilt(draw: st.DrawFn, target: Target) -> dict[str, Any]:
    """Draw changed parameters, usable or not."""
    changed: dict[str, Any] = {}
    for name in draw(st.lists(st.sampled_from(sorted(target.variants)), max_size=4)):
        changed[name] = draw(st.sampled_from(target.variants[name]))
    if draw(chance(35)):
        spoiled = draw(st.sampled_from(sorted(target.parameters)))
        declared = spoiled.rpartition("__")[2] in DECLARED
        values = [constants()] * 9 + [constants() if declared else st.sampled_from(MARKED)]
        changed[spoiled] = draw(st.one_of(values))
        if spoiled in OBJECTS:
            changed = {name: value for name, value in changed.items() if "__" not in name}
    if "budget" in target.parameters and "budget" not in changed:
        changed["budget"] = POOR if draw(chance(10)) else purse()
    return changed


def second_argument(draw: st.DrawFn, target: Target, n_rows: int) -> tuple[str, Any]:
    """Draw what `fit` takes after X."""
    if target.second == "times":
        return draw(times(n_rows))
    if target.second == "targets" and draw(st.booleans()):
        return "real numbers", np.linspace(-1, 1, n_rows)
    return draw(labels(n_rows, usable=70))


def check_fit(draw: st.DrawFn, name: str) -> None:
    """Fit once, and see that everything holds."""
    target = TARGETS[name]
    changed = draw(spoilt(target))
    table = draw(tables(usable=60))
    y_name, y = second_argument(draw, target, table.n_rows)
    declared = changed.get("classes", getattr(target.small, "classes", None))
    if isinstance(declared, list) and draw(chance(20)):
        y_name, y = "undeclared", undeclared(table.n_rows)
    names, options = {}, {}
    for option in target.options:
        if draw(chance(90 if option == "sensitive_features" else 10)):
            drawn = times if option == "t" else labels
            names[option], options[option] = draw(drawn(table.n_rows, usable=80))
    again, html = draw(chance(10)), draw(chance(10))
    estimator = (good_fit(name) if again else clone(target.small)).set_params(**changed)
    given_rows = fingerprint(table.value)

    def told() -> str:
        shown = {k: v for k, v in changed.items() if k not in ("budget", "random_state")}
        return f"{name} of {table}, y={y_name}, {names}, {shown}, again={again}"

    private = getattr(target.small, "private", True)
    with explained(told):
        call = partial(estimator.fit, table.value, y, **options)
        outcome = tried(name, estimator, call, due=1, private=private)
        assert fingerprint(table.value) == given_rows, "X was written to"
        if outcome.error is None:
            check_statement(estimator, budget_of(estimator))
            if private and not is_plain(estimator):
                assert not holds_number(vars(estimator)), "an attribute holds a private value"
        if private and not is_marked(changed):
            # Once they are published the classes of y are public, and shown.
            published = outcome.error is None and y_name in PUBLISHED
            check_shown(name, estimator, html=html and not published)
        if outcome.error is None:
            n_rows = None if options.get("groups") is not None else table.n_rows  # or persons
            later = attempt(f"{name}, read", lambda: check_answers(estimator, n_rows))
            assert later.error is None, f"unusable once it is fitted: {later.error!r}"


def is_marked(changed: dict[str, Any]) -> bool:
    """Whether a parameter holds data: an estimator shows its own parameters."""
    return any(value is one for value in changed.values() for one in MARKED)


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
        # A ledger keeps the closest Gaussian, which is not so close to a sampled one.
        most = 2.0 if "Sampled" in str(spent.event) else 1.05
        assert budget.history()["epsilon"].iloc[-1] <= spent.epsilon * most


def check_shown(name: str, estimator: Any, *, html: bool) -> None:
    """What a notebook shows of an estimator has no private value, whatever became of the fit."""
    shown = [estimator, getattr(estimator, "privacy_spent_", None)]
    texts = [repr(one) for one in shown]
    if html:  # with the fitted attributes
        check_texts(name, [one._repr_html_() for one in shown if one is not None], MARKER)
    check_texts(name, texts)


# --- what fitted estimators are asked ----------------------------------------------------------

# What is drawn for an argument of this name, beside rows, labels and times of so many rows.
SEEDS = ("seed", -1, 2**32, 1.5, np.random.RandomState(0), np.random.default_rng(0), float("nan"))
WANTED = (
    *(None, {}, {"x0": (None, 0.0)}, {"x0": 0.1, "x1": (-0.5, None)}, {"x0": (0.2, -0.2)}),
    *({"x0": None}, {"x2": 1}, {0: 1}, {"x0": "a"}, {"x0": [1, 2]}, {"x0": (1, 2, 3)}),
    *({"x0": float("nan")}, {"x0": (-float("inf"), 5e-324)}, {"x0": 10**400}, {"x1": 1e300}),
)
STAMPS = (None, 0.0, 0.25, 1.0, [0.0, 0.7], [], -1.0, 2.0, [float("nan")], "2020-01-01", ["a"])
PATHS = ("/nonexistent/sketch.safetensors", gettempdir(), Path(gettempdir()), "a\0b", "/dev/null")
GRIDS = (
    *({}, {"diffusivity": [0.1, 1e-9, 1e9]}, [{"coupling": ["exact"]}, {"mechanism__smooth": [0]}]),
    *({"epsilon": [2.0]}, {"diffusivity": []}, {"diffusivity": 0.1}, {"coupling": ["x", None]}),
)
STATISTICS = (
    *(None, lambda fitted: fitted.particles_.std(), lambda fitted: float("nan")),
    *(lambda fitted: "a", lambda fitted: [], lambda fitted: np.zeros(fitted.sketch_.n_bins_)),
)
NOT_FILES = [one for one in CONSTANTS if isinstance(one, bool) or not isinstance(one, int)]
ANYTHING = st.one_of(constants(), tables(width=2).map(lambda table: table.value))
PARTIES = st.one_of(
    ANYTHING,
    st.lists(ANYTHING, max_size=3),
    st.dictionaries(st.sampled_from(("a", "b", "", 3, None)), ANYTHING, max_size=3),
)
STAMP = st.one_of(st.sampled_from(STAMPS), constants())
ASKED = {
    **dict.fromkeys(("x", "q", "sensitive_features"), ANYTHING),
    "others": st.one_of(ANYTHING, st.lists(ANYTHING, max_size=3)),
    **dict.fromkeys(("fairness", "level", "measure"), constants()),
    "label": st.one_of(st.none(), st.sampled_from((0, 1, 7)), constants()),
    **dict.fromkeys(("clients", "parties"), PARTIES),
    "weights": st.one_of(st.sampled_from((None, [1.0, 0.0], [1, 1, 1])), constants()),
    **dict.fromkeys(("n_samples", "n_particles", "n_points"), numbers_of_rows()),
    "random_state": st.sampled_from((None, 0, *SEEDS)),
    **dict.fromkeys(("time", "times"), STAMP),
    "steps": st.one_of(st.sampled_from((None, 1, [0, 1])), constants()),
    "conditions": st.one_of(st.sampled_from(WANTED), constants()),
    # An integer would be an open file of this process.
    "path": st.one_of(st.sampled_from(NOT_FILES), st.sampled_from(PATHS)),
    **dict.fromkeys(("return_std", "confidence"), constants()),
    "param_grid": st.one_of(st.sampled_from(GRIDS), constants()),
    "statistic": st.one_of(st.sampled_from(STATISTICS), constants()),
    "n_simulations": st.sampled_from((8, 9, 7, 0, True, 8.5, "8", None, float("nan"))),
}
PER_ROW = ("predict", "predict_proba", "decision_function", "inverse_transform", "score_samples")


def check_method(draw: st.DrawFn, name: str, method: str) -> None:
    """Ask a fitted estimator whatever it can be asked; nothing changes."""
    estimator = fitted(name)
    call = getattr(estimator, method, None)
    if call is None:  # a protocol that publishes nothing
        return
    width = estimator.n_features_in_
    table = draw(tables(width=draw(st.sampled_from((width, width, width, None)))))
    if is_classifier(estimator) or is_regressor(estimator):
        y = np.arange(table.n_rows) % 2  # scores of scikit-learn are not for us to try
    else:
        target = TARGETS.get(name, TARGETS["SlicedSketch"])
        y = second_argument(draw, target, table.n_rows)[1]
    known = dict.fromkeys(("X", "other"), st.just(table.value)) | {"y": st.just(y)}
    known |= {"masses": labels(table.n_rows), "t": times(table.n_rows)}
    known |= {"sample_weight": st.one_of(st.none(), st.just(np.ones(table.n_rows)))}
    args, given = draw(arguments(call, ASKED | known))
    publishes = method in ("publish", "transform") and hasattr(estimator, "protocol_")
    due = int(publishes and estimator.protocol_.is_private)
    if given.get("X", args) is None or (publishes and "X" not in given and not args):
        due = None  # what this estimator has published before is published again
    with (
        explained(lambda: f"{name}.{method}{args} {given} of {table}"),
        TemporaryDirectory() as directory,
        chdir(directory),
    ):
        asked = f"{name}.{method}"
        allowed = (OSError,) if method in ("save", "load") else ()
        call = partial(call, *args, **given)
        outcome = tried(asked, estimator, call, due=due, changes=False, allowed=allowed)
        of_one = table.n_rows < 2 and method == "score"  # R² of one row is not defined
        of_tables = isinstance(estimator, DPTableSynthesizer | TableEncoder)  # may have gaps
        if outcome.error is None and not of_one:
            assert is_number(outcome.value, missing=of_tables), outcome.value
        if outcome.error is None and method in PER_ROW and table.plain:
            assert len(outcome.value) == table.n_rows
        if outcome.error is None and method.startswith("sample"):
            rows = outcome.value[0] if isinstance(outcome.value, tuple) else outcome.value
            assert len(rows) % int(given.get("n_samples", 1)) == 0


def methods_of(kind: type[Any]) -> list[str]:
    """Name what a fitted estimator of this kind can be asked."""
    others = ("_", "fit", "partial_fit", "retrain", "get_", "set_")
    names = (name for name in dir(kind) if not name.startswith(others))
    return [name for name in names if callable(getattr(kind, name))]


def check_stream(draw: st.DrawFn) -> None:
    """Feed a stream: a chunk that is refused is not added, and the stream goes on."""
    small = TARGETS["SlicedSketch"]
    changed = draw(spoilt(small))
    sketch = clone(small.small).set_params(**changed)
    opened, rows = False, 0
    for _ in range(draw(st.integers(1, 3))):
        table = draw(tables(width=draw(st.sampled_from((2, 2, None)))))
        _, y = draw(labels(table.n_rows, usable=80))
        declared = draw(st.one_of(st.none(), st.none(), st.sampled_from((24, 1)), constants()))
        outcome = tried(
            "SlicedSketch.partial_fit",
            sketch,
            partial(sketch.partial_fit, table.value, y, n_samples=declared),
            due=int(not opened),
            allowed=(AttributeError,) if hasattr(sketch, "statistic_") else (),
        )
        if outcome.error is None:
            opened, rows = True, rows + table.n_rows
        if not is_marked(changed):
            check_shown("SlicedSketch", sketch, html=False)
    if opened and not hasattr(sketch, "statistic_"):
        outcome = attempt("SlicedSketch.close", sketch.close)
        assert outcome.error is None
        check_answers(sketch, rows)


def check_contribution(draw: st.DrawFn) -> None:
    """Fit `ClientContribution` with whatever is passed as an estimator."""
    table = draw(tables(usable=70))
    inner = clone(TARGETS["PrivateWassersteinDistance sliced"].small)
    estimator = ClientContribution(draw(st.one_of(st.just(inner), constants())))
    y = draw(labels(table.n_rows))[1]
    tried("ClientContribution.fit", estimator, partial(estimator.fit, table.value, y))
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
    if tried(f"{name}.retrain", generator, partial(generator.retrain, seed)).error is None:
        assert is_number(generator.sample(3))


# --- all of them -------------------------------------------------------------------------------


@dataclass(frozen=True)
class Case:
    """What is tried, and how often in the default run."""

    check: Callable[[st.DrawFn], None]
    examples: int


CASES = {
    f"{name}.fit": Case(partial(check_fit, name=name), 8 if "Fair" in name else 15)
    for name in TARGETS
}
KINDS = {name: target.kind for name, target in TARGETS.items()}
CASES |= {
    f"{name}.{method}": Case(partial(check_method, name=name, method=method), 10)
    for name, kind in (KINDS | {"ClientContribution": ClientContribution}).items()
    for method in methods_of(kind)
}
CASES |= {
    "SlicedSketch.partial_fit": Case(check_stream, 25),
    "ClientContribution.fit": Case(check_contribution, 15),
    "DPSlicedGenerator.retrain": Case(check_retrain, 10),
} | {
    name: Case(partial(check_function, name=name, call=call), 25)
    for name, call in FUNCTIONS.items()
}
