"""Print how the package is divided, how large its parts are, and what each is meant to be.

python tools/house.py            the table; needs no installed environment
python tools/house.py --names    also the names that several files define
python tools/house.py --walk     also the files that one fit of three estimators passes (needs one)

With ``--strict`` the exit code is 1 if a row is over its target and has none of the `REASONS`.
"""

import ast
import sys
import warnings
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "skdpot"
DEFINITIONS = (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
IMPORTS = (ast.Import, ast.ImportFrom)
WINGS = {"tables": 6_500} | dict.fromkeys(
    ("sampling", "trajectories", "distance", "fair", "search"), 3_200
)
ON_TOP = ("audit", "cli")
# Why a row is over its target, until it is not.
REASONS = {
    "core, code lines": "a third is privacy: accounts, ledgers, statements",
    "tables, code lines": "450 are metrics and pictures of marginals",
    "sampling, code lines": "490 are the display and the codes, edges and networks of images",
    "distance, code lines": "670 are messages, and carrying them between machines",
    "fair, code lines": "350 are stated errors, 400 domain adaptation, which shares its steps",
    "whole package, code lines": "4,100 are imports and lists of names: one idea a file",
    "whole package, lines of docstrings": "9,300 are the public reference",
}
DOORS = ("datasets", "federated", "mechanisms", "metrics", "model_selection", "preprocessing")


def lines_of(path: Path) -> Counter[str]:
    """Count lines of code (no blanks, comments, docstrings) and of docstrings."""
    text = path.read_text(encoding="utf-8")
    documented: set[int] = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, (ast.Module, *DEFINITIONS)) and ast.get_docstring(node) is not None:
            documented |= set(range(node.body[0].lineno, (node.body[0].end_lineno or 0) + 1))
    written = [
        number
        for number, line in enumerate(text.splitlines(), 1)
        if line.strip() and not line.strip().startswith("#")
    ]
    code = sum(number not in documented for number in written)
    return Counter(code=code, docstring=len(documented), files=1)


def room_of(path: Path) -> str:
    """Return the wing of a file, "core", "on top" or "doors"."""
    room = path.relative_to(PACKAGE).parts[0].removesuffix(".py")
    if room in WINGS:
        return room
    if room in ON_TOP:
        return "on top"
    return "doors" if room in (*DOORS, "__init__") else "core"


def sizes(files: list[Path]) -> dict[str, Counter[str]]:
    """Return the size of each room."""
    total: dict[str, Counter[str]] = defaultdict(Counter)
    for path in files:
        total[room_of(path)] += lines_of(path)
    return total


def module_name(path: Path) -> str:
    """Return the dotted name of a file."""
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


def imports(files: list[Path]) -> dict[str, set[str]]:
    """Return the modules of the package that each module imports, also for type checkers alone."""
    modules = {module_name(path) for path in files}
    arrows: dict[str, set[str]] = {}
    for path in files:
        arrows[module_name(path)] = targets = set()
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and node.module:
                inside = {f"{node.module}.{alias.name}" for alias in node.names} & modules
                targets |= inside or {node.module} & modules
    return arrows


def between_wings(arrows: dict[str, set[str]]) -> int:
    """Count the imports from one wing to another."""

    def wing(module: str) -> str:
        return module.removeprefix("skdpot.").split(".")[0]

    return sum(
        wing(module) in WINGS and wing(target) in WINGS and wing(module) != wing(target)
        for module, targets in arrows.items()
        for target in targets
    )


def circles(arrows: dict[str, set[str]]) -> list[set[str]]:
    """Return the groups of modules that import each other."""

    def reached(start: str) -> set[str]:
        seen: set[str] = set()
        waiting = [start]
        while waiting:
            new = arrows[waiting.pop()] - seen
            seen |= new
            waiting += new
        return seen

    reach = {module: reached(module) for module in arrows}
    groups = [{other for other in seen if module in reach[other]} for module, seen in reach.items()]
    return [group for i, group in enumerate(groups) if group and group not in groups[:i]]


def constants_within(path: Path) -> list[str]:
    """Return the constants that stand after the first definition of a file."""
    seen, late = False, []
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        seen |= isinstance(node, DEFINITIONS)
        if seen and isinstance(node, ast.Assign | ast.AnnAssign):
            target = node.targets[0] if isinstance(node, ast.Assign) else node.target
            # A constant may need a definition above it, as a table of classes does.
            if isinstance(target, ast.Name) and isinstance(node.value, ast.Constant):
                late.append(target.id)
    return late


def shared_names(files: list[Path]) -> dict[str, list[str]]:
    """Return the public names that several files define, with these files."""
    homes: dict[str, list[str]] = defaultdict(list)
    for path in files:
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, DEFINITIONS) and not node.name.startswith("_"):
                homes[node.name].append(path.relative_to(PACKAGE).as_posix())
    return {name: places for name, places in sorted(homes.items()) if len(places) > 1}


def declared(files: list[Path]) -> tuple[int, int]:
    """Count the abstract methods of what extensions derive from, and those with a docstring."""
    bases = {"Event", "Source", "TableColumn"}
    found = []
    for path in files:
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.ClassDef) and (
                node.name in bases or node.name.endswith("Mechanism")
            ):
                found += [
                    part
                    for part in node.body
                    if isinstance(part, ast.FunctionDef)
                    and any("abstract" in ast.unparse(mark) for mark in part.decorator_list)
                ]
    return len(found), sum(ast.get_docstring(part) is not None for part in found)


def walked(act: Callable[[], Any]) -> dict[Path, set[str]]:
    """Return the functions of the package that a call passes, by file."""
    passed: dict[Path, set[str]] = defaultdict(set)

    def profile(frame: FrameType, event: str, _: Any) -> None:
        if event == "call" and frame.f_code.co_filename.startswith(str(PACKAGE)):
            passed[Path(frame.f_code.co_filename)].add(frame.f_code.co_qualname)

    sys.setprofile(profile)
    try:
        act()
    finally:
        sys.setprofile(None)
    return passed


def fits() -> Iterator[tuple[str, Callable[[], Any]]]:
    """Yield a fit of three estimators."""
    import numpy as np
    import pandas as pd

    import skdpot
    from skdpot.preprocessing import BooleanColumn, NumericColumn

    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (500, 4))
    group = rng.integers(0, 2, 500)
    y = (X[:, 0] + 0.3 * group > 0).astype(int)
    table = pd.DataFrame({"age": rng.integers(18, 90, 2000), "smokes": rng.random(2000) < 0.3})
    age = NumericColumn("age", lower=18, upper=90, integer=True)
    schema = skdpot.TableSchema([age, BooleanColumn("smokes")])
    sampler = skdpot.DPSlicedFlowSampler(epsilon=2.0, bounds=(-1, 1), n_steps=20, device="cpu")
    yield "DPSlicedFlowSampler", lambda: sampler.fit(X)
    synthesizer = skdpot.DPTableSynthesizer(schema, target="smokes")
    yield "DPTableSynthesizer", lambda: synthesizer.fit(table)
    classifier = skdpot.FairPrivateClassifier(epsilon=3.0, device="cpu")
    yield "FairPrivateClassifier", lambda: classifier.fit(X, y, sensitive_features=group)


def table(files: list[Path]) -> Iterator[tuple[str, int, int | None]]:
    """Yield what is counted, the count and the target."""
    by_room = sizes(files)
    whole: Counter[str] = sum(by_room.values(), Counter())
    yield "core, code lines", by_room["core"]["code"], 9_500
    for wing, most in WINGS.items():
        yield f"{wing}, code lines", by_room[wing]["code"], most
    yield "audit and cli, code lines", by_room["on top"]["code"], None
    yield "whole package, code lines", whole["code"], 30_000
    yield "whole package, lines of docstrings", whole["docstring"], 12_000
    yield "files", whole["files"], None
    tests: Counter[str] = sum(map(lines_of, sorted((ROOT / "tests").rglob("*.py"))), Counter())
    yield "tests, code lines", tests["code"], None
    arrows = imports(files)
    yield "imports between wings", between_wings(arrows), 0
    yield "groups of files that import each other", len(circles(arrows)), 0
    n_abstract, n_documented = declared(files)
    yield f"abstract methods of {n_abstract} without a docstring", n_abstract - n_documented, 0
    yield "public names that several files define", len(shared_names(files)), 0
    yield "files with constants after a definition", sum(map(bool, map(constants_within, files))), 0


def print_walks() -> None:
    """Print the files that each fit passes, with the number of functions in each."""
    warnings.simplefilter("ignore")
    for name, fit in fits():
        fit()  # imports are no part of the walk
        passed = walked(fit)
        rooms = Counter(room_of(path) for path in passed)
        print(f"{name}.fit passes {len(passed)} files: {dict(rooms)}")
        for path, functions in sorted(passed.items()):
            print(f"    {path.relative_to(ROOT)}  {len(functions)}")


def main() -> None:
    """Print the table."""
    files = sorted(PACKAGE.rglob("*.py"))
    over = []
    for row, count, most in table(files):
        beside = "" if most is None else f"at most {most:6,}"
        if most is not None and count > most:
            over.append(row)
            beside += f"   over: {REASONS.get(row, 'unexplained')}"
        print(f"{row:48} {count:7,}   {beside}".rstrip())
    if "--names" in sys.argv:
        for name, places in shared_names(files).items():
            print(f"    {name}: {', '.join(places)}")
        for path in files:
            if late := constants_within(path):
                print(f"    {path.relative_to(PACKAGE)}: {', '.join(late)}")
    if "--walk" in sys.argv:
        print_walks()
    if "--strict" in sys.argv and set(over) - REASONS.keys():
        raise SystemExit(1)


if __name__ == "__main__":
    main()
