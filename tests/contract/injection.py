"""Putting a defect into the package for the time of one test, and running the test on it.

Defects are changes of behaviour: a function is given other arguments (half of the noise, an
endless clip), returns another value, reads another constant, does nothing, or charges later.
Everybody who has imported the function runs the defect, and it is found by its qualified name, in
whatever file it stands. A defect that finds nothing to change is an error.
"""

import functools
import inspect
import re
import sys
import types
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any, TypeAlias

import hypothesis
import pytest
from _pytest.runner import runtestprotocol  # as the plugins that repeat tests use it

from skdpot.privacy import charges
from tests.payer import Payer

ROOT = Path(__file__).resolve().parents[2]
# The nested run takes the settings of the project, and shows nothing.
_OPTIONS = (
    "-c",
    str(ROOT / "pyproject.toml"),
    "--rootdir",
    str(ROOT),
    "--override-ini=addopts=--import-mode=importlib --strict-markers",
    "--capture=sys",
    *(f"-pno:{name}" for name in ("terminal", "cacheprovider", "faulthandler", "logging")),
    *(f"-pno:{name}" for name in ("unraisableexception", "threadexception")),  # half a second
)


class StaleMutantError(Exception):
    """What a mutant changes is not there any more: write the mutant anew."""


class Reached:
    """Counts how often a mutated function was called."""

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self) -> None:
        self.calls += 1


@dataclass(frozen=True)
class Injection:
    """One change of behaviour.

    Parameters
    ----------
    where : str
        What it changes.
    says : str
        How, for the table.
    inject : callable
        Makes it for as long as the patch lasts; raises `StaleMutantError` where it cannot.
    """

    where: str
    says: str
    inject: Callable[[pytest.MonkeyPatch, Reached], None]


# By the number of a defect: what makes the package behave so, and where that happens with the test
# that must fail.
Injections: TypeAlias = dict[int, list[tuple[Injection, dict[str, str]]]]


# ------------------------------------------------------------------------------------ the hooks


def replaced(
    where: str,
    make: Callable[[Any], Any],
    says: str,
    within: str = "",
    parameters: Iterable[str] = (),
) -> Injection:
    """Put another function in the place of one, for everybody who looks it up.

    Parameters
    ----------
    where : str
        ``"name"`` or ``"Class.name"``, wherever in the package that is; properties and class
        methods too.
    make : callable
        Is given the original and returns the function that takes its place.
    says : str
        What that does, for the table.
    within : str, default=""
        Only while the function of this qualified name runs, or one inside it.
    parameters : iterable of str, default=()
        What the function must have, where several have the name.
    """

    def inject(patch: pytest.MonkeyPatch, reached: Reached) -> None:
        _check_there(within)
        owner, name = _owner(where, parameters)
        original = _undecorated(held := inspect.getattr_static(owner, name))
        other = make(original)

        @functools.wraps(original)
        def mutated(*args: Any, **options: Any) -> Any:
            if within and not _runs(within):
                return original(*args, **options)
            reached()
            return other(*args, **options)

        if not inspect.isclass(owner):
            _everywhere(patch, original, mutated)
        elif isinstance(held, property | functools.cached_property):
            patch.setattr(owner, name, property(mutated))
        elif isinstance(held, classmethod | staticmethod):
            patch.setattr(owner, name, type(held)(mutated))
        else:
            patch.setattr(owner, name, mutated)

    return Injection(where, f"{says}, in {within}" if within else says, inject)


def instead(where: str, other: Callable[..., Any], within: str = "") -> Injection:
    """Let another function answer."""
    return replaced(
        where, lambda _: other, _said(other), within, inspect.signature(other).parameters
    )


def given(where: str, within: str = "", **changes: Any) -> Injection:
    """Give a function other arguments.

    Each is a value, or what a function makes of the one that was given; its further parameters
    are other arguments of the same call, by their names.
    """

    def make(original: Any) -> Any:
        signature = inspect.signature(original)

        def changed(*args: Any, **options: Any) -> Any:
            bound = _bound(signature, args, options)
            for name, change in changes.items():
                bound.arguments[name] = _changed(change, bound.arguments[name], bound)
            return original(*bound.args, **bound.kwargs)

        return changed

    says = ", ".join(f"{name}: {_said(change)}" for name, change in changes.items())
    needed = {*changes, *(name for change in changes.values() for name in _others(change))}
    return replaced(where, make, says, within, needed)


def returning(where: str, change: Any, within: str = "") -> Injection:
    """Let a function return another value, or what a function makes of its own, as in `given`."""

    def make(original: Any) -> Any:
        signature = inspect.signature(original)

        def changed(*args: Any, **options: Any) -> Any:
            result = original(*args, **options)
            return _changed(change, result, _bound(signature, args, options))

        return changed

    return replaced(where, make, f"returns: {_said(change)}", within, _others(change))


def reading(where: str, **changes: Any) -> Injection:
    """Let a function, and its module, read other values under names of that module."""
    called = replaced(where, lambda original: original, "")

    def inject(patch: pytest.MonkeyPatch, reached: Reached) -> None:
        names = inspect.unwrap(_undecorated(inspect.getattr_static(*_owner(where)))).__globals__
        for name, change in changes.items():
            if name not in names:
                raise StaleMutantError(f"{name} is no name in the module of {where}")
            value = change(names[name]) if callable(change) else change
            patch.setitem(names, name, value)
        called.inject(patch, reached)

    says = ", ".join(f"{name}: {_said(change)}" for name, change in changes.items())
    return Injection(where, says, inject)


def skipped(where: str, returns: str | None = None, within: str = "") -> Injection:
    """Leave a call out; it returns one of its arguments, or None."""

    def make(original: Any) -> Any:
        signature = inspect.signature(original)

        def nothing(*args: Any, **options: Any) -> Any:
            return returns and signature.bind(*args, **options).arguments[returns]

        return nothing

    return replaced(where, make, "does nothing", within, [returns] if returns else ())


def all_of(*injections: Injection) -> Injection:
    """Make several changes that are one defect together."""

    def inject(patch: pytest.MonkeyPatch, reached: Reached) -> None:
        for injection in injections:
            injection.inject(patch, reached)

    where = dict.fromkeys(injection.where for injection in injections)
    return Injection("; ".join(where), "; ".join(i.says for i in injections), inject)


def half_noise(within: str) -> Injection:
    """Halve all noise that is drawn while a function runs."""
    drawn = (
        given("discrete_gaussian", within, s=half),
        given("gaussian_noise", within, sigma=half),
    )
    return Injection(within, "half of the noise that is drawn in it", all_of(*drawn).inject)


def as_any_object(where: str) -> Injection:
    """Let a class be pickled as if it said nothing of its own about it."""

    def make(original: Any) -> Any:
        return {
            "__reduce_ex__": object.__reduce_ex__,
            "__getstate__": lambda self: dict(vars(self)),
        }[where.rpartition(".")[2]]

    return replaced(where, make, "as any object")


def charged_late(estimator: str) -> Injection:
    """Charge the budget when ``"Class.method"`` is over, in the place of before it releases."""

    def inject(patch: pytest.MonkeyPatch, reached: Reached) -> None:
        owner, method = _owner(estimator)
        settle, due = charges.charge, []

        def promise(payer: Any, *args: Any, **options: Any) -> Any:
            reached()
            due.append(functools.partial(settle, payer, *args, **options))
            name = getattr(payer, "caller", type(payer).__name__)
            return settle(Payer(None, payer.epsilon, payer.delta, name), *args, **options)

        patch.setattr(owner, method, _followed(getattr(owner, method), due))
        _everywhere(patch, settle, promise)

    return Injection("charge", f"charged at the end of {estimator}", inject)


def checked_late(where: str, within: str) -> Injection:
    """Make a check of a function when the budget has been charged, in the place of before."""

    def inject(patch: pytest.MonkeyPatch, reached: Reached) -> None:
        owner, name = _owner(where)
        _check_there(within)
        check, due = getattr(owner, name), []

        def promise(*args: Any, **options: Any) -> Any:
            if not _runs(within):
                return check(*args, **options)
            reached()
            return due.append(functools.partial(check, *args, **options))

        _everywhere(patch, check, promise)
        _everywhere(patch, charges.charge, _followed(charges.charge, due))

    return Injection(where, f"after the charge, in {within}", inject)


def _followed(call: Any, due: list[Any]) -> Any:
    """Make a function do what is due when it is over."""

    @functools.wraps(call)
    def late(*args: Any, **options: Any) -> Any:
        result = call(*args, **options)
        while due:
            due.pop()()
        return result

    return late


LARGE = 1e300


def half(value: Any) -> Any:
    """Halve a number, or each of several batch sizes, rounded up."""
    if isinstance(value, tuple):
        return tuple(-(-size // 2) for size in value)
    return value / 2


def twice(rate: float) -> float:
    """Double a rate, up to 1."""
    return min(1.0, 2 * rate)


def _changed(change: Any, value: Any, bound: inspect.BoundArguments) -> Any:
    if not callable(change):
        return change
    return change(value, *(bound.arguments[name] for name in _others(change)))


def _others(change: Any) -> list[str]:
    """Return the arguments of a call that a change reads beside the value that it changes."""
    if not isinstance(change, types.FunctionType):
        return []
    return list(inspect.signature(change).parameters)[1:]


def _said(change: Any) -> str:
    name = getattr(change, "__name__", None)
    return str(change) if name is None else name.replace("_", " ").strip()


def _bound(signature: inspect.Signature, args: Any, options: Any) -> inspect.BoundArguments:
    bound = signature.bind(*args, **options)
    bound.apply_defaults()
    return bound


def _everywhere(patch: pytest.MonkeyPatch, original: Any, other: Any) -> None:
    """Put something in the place of a function in every module that has imported it."""
    for name, module in list(sys.modules.items()):
        if name.split(".")[0] in ("skdpot", "tests"):
            for attribute, value in list(vars(module).items()):
                if value is original:
                    patch.setattr(module, attribute, other)


def _runs(within: str) -> bool:
    """Say whether a function of this qualified name, or one inside it, is being run."""
    frame: types.FrameType | None = sys._getframe(1)
    while frame is not None:
        name = frame.f_code.co_qualname
        if name == within or name.startswith(f"{within}."):
            return True
        frame = frame.f_back
    return False


@functools.cache
def _defining(name: str) -> tuple[str, ...]:
    """Return the modules of the package that define a function or class of this name."""
    definition = re.compile(rf"^(?:async )?(?:def|class) {name}\b", re.MULTILINE)
    return tuple(
        ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
        for path in sorted((ROOT / "skdpot").rglob("*.py"))
        if definition.search(path.read_text(encoding="utf-8"))
    )


def _owners(where: str) -> Iterator[tuple[Any, str]]:
    """Return what holds a name, wherever in the package it is defined now."""
    *parents, name = where.split(".")
    for module in _defining(where.split(".")[0]):
        try:
            owner = functools.reduce(getattr, parents, import_module(module))
            inspect.getattr_static(owner, name)
        except AttributeError:
            continue
        yield owner, name


def _owner(where: str, parameters: Iterable[str] = ()) -> tuple[Any, str]:
    """Return what holds the one function of this name that has these parameters."""

    def fits(owner: Any, name: str) -> bool:
        function = _undecorated(inspect.getattr_static(owner, name))
        return inspect.signature(function).parameters.keys() >= set(parameters)

    found = [place for place in _owners(where) if not parameters or fits(*place)]
    if len(found) != 1:
        such = f"{where}({', '.join(parameters)})"
        raise StaleMutantError(f"{such} is found in {len(found)} places: {found}")
    return found[0]


def _check_there(within: str) -> None:
    if within and not any(_owners(within)):
        raise StaleMutantError(f"{within} is not there")


def _undecorated(held: Any) -> Any:
    """Return the function of a property or a class method."""
    for attribute in ("fget", "func", "__func__"):
        held = getattr(held, attribute, None) or held
    return held


# ------------------------------------------------------------------------------------ the test


@dataclass
class Outcome:
    """What one run of a test came to.

    Parameters
    ----------
    calls : int
        How often the mutated function was called.
    errors : list of BaseException
        What was raised, in setting up as well.
    passed : int
        Tests that passed.
    """

    calls: int = 0
    errors: list[BaseException] = field(default_factory=list)
    passed: int = 0

    @property
    def healthy(self) -> bool:
        """Whether there was a test, and nothing failed."""
        return self.passed > 0 and not self.errors

    @property
    def caught(self) -> bool:
        """Whether the test failed for what it says, and not because the patch broke something."""
        failed = bool(self.errors) and all(map(_is_assertion, self.errors))
        return failed and self.calls > 0

    @property
    def says(self) -> str:
        """The line of the failed assertion, with its numbers rounded."""
        said = [line.strip() for error in self.errors for line in str(error).splitlines()]
        lines = [line for line in said if line]  # numpy begins with an empty one
        # A message of its own comes before the line that pytest writes.
        place = next((k for k, line in enumerate(lines) if line.startswith("assert ")), 0)
        chosen = (lines or [""])[place].removeprefix("assert ")
        if not any(map(str.isdigit, chosen)):  # what is compared stands in the next lines
            more = [line for line in lines[place + 1 :] if line.startswith(("+", "Actual"))]
            chosen = " ".join([chosen, *more[:1]])
        return _short(chosen)


def run_tests(
    wanted: Sequence[tuple[str, Injection]], n_healthy: int | None = None
) -> tuple[dict[str, Outcome], list[Outcome]]:
    """Run tests of one file in this process, on the package as it is and with defects.

    The file is imported anew, before any defect is there: its random numbers are the same
    whenever this is called, and nothing that it computes at import is spoilt.

    Parameters
    ----------
    wanted : sequence of (str, callable)
        ``"tests/core/privacy/test_x.py::test_name[case]"``, all of one file, and what is injected.
    n_healthy : int, optional
        How many of the tests are run without any defect too; by default all.

    Returns
    -------
    healthy : dict of str to Outcome
        Of each test that was run without any defect.
    hurt : list of Outcome
        Of each of `wanted`.
    """
    runs = _Runs(wanted, n_healthy)
    nodes = list(dict.fromkeys(str(ROOT / node) for node, _ in wanted))
    with _fresh_test_modules(), _same_examples(), pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")  # neither workers nor coverage
        pytest.main([*nodes, *_OPTIONS], plugins=[runs])
    return runs.healthy, runs.hurt


class _Runs:
    """A plugin that runs tests as they are, and once with each defect."""

    def __init__(self, wanted: Sequence[tuple[str, Injection]], n_healthy: int | None) -> None:
        self._wanted = wanted
        self._nodes = list(dict.fromkeys(node for node, _ in wanted))
        self.healthy = {node: Outcome() for node in self._nodes[:n_healthy]}
        self.hurt = [Outcome() for _ in wanted]
        self._now = Outcome()

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_protocol(self, item: Any, nextitem: Any) -> bool:
        for node in self._nodes:
            # A node without its case stands for all cases.
            if item.nodeid == node or item.nodeid.startswith(f"{node}["):
                if node in self.healthy:
                    self._run(item, self.healthy[node], None)
                for (name, injection), outcome in zip(self._wanted, self.hurt, strict=True):
                    if name == node:
                        self._run(item, outcome, injection)
        return True

    def _run(self, item: Any, outcome: Outcome, injection: Injection | None) -> None:
        self._now, reached = outcome, Reached()
        _forget_cached()
        with pytest.MonkeyPatch.context() as patch:
            try:
                if injection is not None:
                    injection.inject(patch, reached)
                runtestprotocol(item, log=False, nextitem=None)
            except Exception as error:  # the mutant is wrong, and not the package
                outcome.errors.append(StaleMutantError(repr(error)))
        _forget_cached()
        outcome.calls += reached.calls

    def pytest_runtest_makereport(self, item: Any, call: Any) -> None:
        if call.excinfo is not None:
            self._now.errors.append(call.excinfo.value)
        elif call.when == "call":
            self._now.passed += 1


@contextmanager
def _fresh_test_modules() -> Iterator[None]:
    def own() -> list[str]:
        return [name for name in sys.modules if name.split(".")[0] in ("tests", "conftest")]

    kept = {name: sys.modules.pop(name) for name in own()}
    try:
        yield
    finally:
        for name in own():
            del sys.modules[name]
        sys.modules.update(kept)


@contextmanager
def _same_examples() -> Iterator[None]:
    """Let tests by hypothesis try the same examples every time, and the first failure do."""
    before = hypothesis.settings.get_current_profile_name()
    phases = (hypothesis.Phase.explicit, hypothesis.Phase.generate)
    hypothesis.settings.register_profile(
        "mutants", hypothesis.settings(derandomize=True, database=None, phases=phases)
    )
    hypothesis.settings.load_profile("mutants")
    try:
        yield
    finally:
        hypothesis.settings.load_profile(before)


def _forget_cached() -> None:
    """Empty all caches: what was computed with a defect is not to be used without, or before."""
    for name, module in list(sys.modules.items()):
        if name.split(".")[0] in ("skdpot", "tests"):
            for value in list(vars(module).values()):
                if callable(clear := getattr(value, "cache_clear", None)):
                    clear()


def _is_assertion(error: BaseException) -> bool:
    if isinstance(error, BaseExceptionGroup):
        return all(map(_is_assertion, error.exceptions))
    return isinstance(error, AssertionError | pytest.fail.Exception)


def _short(text: str) -> str:
    """Write the numbers of a failed assertion with four digits."""
    text = re.sub(r"np\.(?:float|int)(?:16|32|64)\(([^()]*)\)", r"\1", text)
    text = re.sub(r"np\.(True|False)_", r"\1", text)
    text = re.sub(r"(\\n)?\s+", " ", re.sub(r" at 0x[0-9a-f]+", "", text))
    text = re.sub(r"\d+\.\d+(?:e[+-]?\d+)?", lambda found: f"{float(found[0]):.4g}", text)
    return text if len(text) <= 120 else text[:117] + "..."
