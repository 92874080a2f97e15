"""Writing a defect into the package for the time of one test, and running the test on it.

A defect is a piece of source text in the place of another, in the function where a programmer would
have made the mistake. The function is compiled anew and given its new code, so that everybody who
has imported it runs the defect, whatever they imported it as.
"""

import ast
import functools
import inspect
import re
import sys
import textwrap
import types
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any

import hypothesis
import pytest
from _pytest.runner import runtestprotocol  # as the plugins that repeat tests use it

__all__ = [
    "Injection",
    "Outcome",
    "Reached",
    "StaleMutantError",
    "all_of",
    "charged_late",
    "replaced",
    "rewritten",
    "run_tests",
]

ROOT = Path(__file__).resolve().parents[2]
_MARK, _REACHED = "_mutant_", "_mutant_was_reached_"
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
    """The source that a mutant changes is not there any more: write the mutant anew."""


class Reached:
    """Counts how often a mutated function was called."""

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self) -> None:
        self.calls += 1


Injection = Callable[[pytest.MonkeyPatch, Reached], None]


def rewritten(where: str, *changes: tuple[str, str]) -> Injection:
    """Change the source of a function.

    Parameters
    ----------
    where : str
        ``"module:function"`` or ``"module:Class.method"``; properties and cached functions too.
    *changes : (str, str)
        What stands there, exactly once, and what takes its place.
    """

    def inject(patch: pytest.MonkeyPatch, reached: Reached) -> None:
        function = _function(where)
        source = textwrap.dedent(inspect.getsource(function))
        for old, new in changes:
            if source.count(old) != 1:
                raise StaleMutantError(f"{where} holds {source.count(old)} times: {old}")
            source = source.replace(old, new)
        patch.setitem(function.__globals__, _REACHED, reached)
        patch.setattr(function, "__code__", _compiled(function, source, where))

    inject.where, inject.changes = where, changes  # type: ignore[attr-defined]
    return inject


def replaced(where: str, make: Callable[[Any], Any], note: str) -> Injection:
    """Put another function in the place of one, where a name is looked up.

    Parameters
    ----------
    where : str
        ``"module:name"`` or ``"module:Class.name"``.
    make : callable
        Is given the original and returns the function that takes its place.
    note : str
        What that does, for the table.
    """

    def inject(patch: pytest.MonkeyPatch, reached: Reached) -> None:
        owner, name = _owner(where)
        other = make(getattr(owner, name))

        @functools.wraps(getattr(owner, name))
        def mutated(*args: Any, **options: Any) -> Any:
            reached()
            return other(*args, **options)

        patch.setattr(owner, name, mutated)

    inject.where, inject.changes = where, (("", note),)  # type: ignore[attr-defined]
    return inject


def charged_late(estimator: str, charge: str) -> Injection:
    """Charge the budget when `fit` is over, in the place of before the release.

    Parameters
    ----------
    estimator : str
        ``"module:Class.method"`` that releases.
    charge : str
        ``"module:name"`` by which it charges.
    """

    def inject(patch: pytest.MonkeyPatch, reached: Reached) -> None:
        (module, name), (owner, method) = _owner(charge), _owner(estimator)
        settle, release, due = getattr(module, name), getattr(owner, method), []

        def promise(budget: Any, *args: Any, **options: Any) -> Any:
            reached()
            due.append((budget, args, options))
            return settle(None, *args, **options)

        @functools.wraps(release)
        def late(*args: Any, **options: Any) -> Any:
            result = release(*args, **options)
            while due:
                budget, given, named = due.pop()
                settle(budget, *given, **named)
            return result

        patch.setattr(module, name, promise)
        patch.setattr(owner, method, late)

    inject.where = charge  # type: ignore[attr-defined]
    inject.changes = (("", f"charged at the end of {estimator.split(':')[1]}"),)  # type: ignore[attr-defined]
    return inject


def all_of(*injections: Injection) -> Injection:
    """Make several changes that are one defect together; each of them must be reached."""

    def inject(patch: pytest.MonkeyPatch, reached: Reached) -> None:
        for injection in injections:
            injection(patch, reached)

    inject.where = "; ".join(i.where for i in injections)  # type: ignore[attr-defined]
    inject.changes = tuple(c for i in injections for c in i.changes)  # type: ignore[attr-defined]
    return inject


def _owner(where: str) -> tuple[Any, str]:
    module, path = where.split(":")
    *parents, name = path.split(".")
    return functools.reduce(getattr, parents, import_module(module)), name


def _function(where: str) -> types.FunctionType:
    """Return the function itself, without the decorators around it."""
    owner, name = _owner(where)
    found = inspect.getattr_static(owner, name)
    for attribute in ("fget", "func", "__func__"):
        found = getattr(found, attribute, None) or found
    return inspect.unwrap(found)


def _compiled(function: types.FunctionType, source: str, where: str) -> types.CodeType:
    """Compile a function that first of all says that it was reached."""
    (definition,) = ast.parse(source).body
    definition.decorator_list = []
    definition.name = _MARK  # so that a call of itself is no reference to what is around it
    (call,) = ast.parse(f"{_REACHED}()").body
    has_docstring = ast.get_docstring(definition) is not None
    definition.body.insert(int(has_docstring), call)
    # What the function closes over, `__class__` for super() among it, comes from around it.
    around = ast.parse(f"def around({', '.join(function.__code__.co_freevars)}):\n    pass")
    around.body[0].body = [definition]
    code = compile(ast.fix_missing_locations(around), f"<mutant of {where}>", "exec")
    for name in ("around", _MARK):
        (code,) = (
            part
            for part in code.co_consts
            if isinstance(part, types.CodeType) and part.co_name == name
        )
    return code.replace(co_name=function.__code__.co_name)


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
    wanted: Sequence[tuple[str, Injection]],
) -> tuple[dict[str, Outcome], list[Outcome]]:
    """Run tests of one file in this process, on the package as it is and with defects.

    The file is imported anew, before any defect is there: its random numbers are the same
    whenever this is called, and nothing that it computes at import is spoilt.

    Parameters
    ----------
    wanted : sequence of (str, callable)
        ``"tests/privacy/test_x.py::test_name[case]"``, all of one file, and what is injected.

    Returns
    -------
    healthy : dict of str to Outcome
        Of each test without any defect.
    hurt : list of Outcome
        Of each of `wanted`.
    """
    runs = _Runs(wanted)
    nodes = list(dict.fromkeys(str(ROOT / node) for node, _ in wanted))
    with _fresh_test_modules(), _same_examples(), pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")  # neither workers nor coverage
        pytest.main([*nodes, *_OPTIONS], plugins=[runs])
    return runs.healthy, runs.hurt


class _Runs:
    """A plugin that runs each test once as it is, and once with each defect."""

    def __init__(self, wanted: Sequence[tuple[str, Injection]]) -> None:
        self._wanted = wanted
        self.healthy = {node: Outcome() for node, _ in wanted}
        self.hurt = [Outcome() for _ in wanted]
        self._now = Outcome()

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_protocol(self, item: Any, nextitem: Any) -> bool:
        for node in self.healthy:
            # A node without its case stands for all cases.
            if item.nodeid == node or item.nodeid.startswith(f"{node}["):
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
                    injection(patch, reached)
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
