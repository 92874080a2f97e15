"""Print how large the project is, how far one fit runs through it, and what each is meant to be.

python tools/house.py            the table
python tools/house.py --rooms    also the size of each package and each folder of tests
python tools/house.py --walk     also the files that each fit passes
"""

import ast
import re
import sys
import warnings
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any

ROOT = Path(__file__).parents[1]
DEFINITIONS = (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


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


def rooms(top: str) -> dict[str, Counter[str]]:
    """Return the size of each folder of `top`."""
    found: dict[str, Counter[str]] = defaultdict(Counter)
    for path in sorted((ROOT / top).rglob("*.py")):
        parts = path.relative_to(ROOT / top).parts
        found[parts[0] if len(parts) > 1 else "."] += lines_of(path)
    return dict(found)


def circles() -> list[set[str]]:
    """Return the groups of modules that import each other, also for type checkers alone."""
    names = {
        ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): path
        for path in (ROOT / "skdpot").rglob("*.py")
    }
    imports: dict[str, set[str]] = {}
    for name, path in names.items():
        imports[name] = set()
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and node.module:
                targets = {f"{node.module}.{alias.name}" for alias in node.names}
                known = targets & names.keys()
                imports[name] |= known or {node.module} & names.keys()

    def reached(start: str) -> set[str]:
        seen: set[str] = set()
        waiting = [start]
        while waiting:
            new = imports[waiting.pop()] - seen
            seen |= new
            waiting += new
        return seen

    # A package whose names load on demand imports its parts for type checkers.
    lazy = {name for name, path in names.items() if "def __getattr__" in path.read_text("utf-8")}
    reach = {name: reached(name) for name in names.keys() - lazy}
    groups = [
        {other for other in seen & reach.keys() if name in reach[other]}
        for name, seen in reach.items()
    ]
    return [group for i, group in enumerate(groups) if group and group not in groups[:i]]


def mentions(mechanism: str) -> list[Path]:
    """Return the files of the package that name a mechanism as a string."""
    spelled = re.compile(rf"""["']{mechanism}["']""")
    files = sorted((ROOT / "skdpot").rglob("*.py"))
    return [path for path in files if spelled.search(path.read_text(encoding="utf-8"))]


def walked(act: Callable[[], Any]) -> dict[Path, set[str]]:
    """Return the functions of the package that a call passes, by file."""
    passed: dict[Path, set[str]] = defaultdict(set)
    root = str(ROOT / "skdpot")

    def profile(frame: FrameType, event: str, _: Any) -> None:
        if event == "call" and frame.f_code.co_filename.startswith(root):
            passed[Path(frame.f_code.co_filename)].add(frame.f_code.co_qualname)

    sys.setprofile(profile)
    try:
        act()
    finally:
        sys.setprofile(None)
    return passed


def fits() -> Iterator[tuple[str, int, Callable[[], Any]]]:
    """Yield a fit of three estimators, and how many files it may pass."""
    import numpy as np
    import pandas as pd

    import skdpot
    from skdpot.preprocessing import BooleanColumn, NumericColumn

    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (500, 4))
    group = rng.integers(0, 2, 500)
    y = (X[:, 0] + 0.3 * group > 0).astype(int)
    table = pd.DataFrame({"age": rng.integers(18, 90, 2000), "smokes": rng.random(2000) < 0.3})
    schema = skdpot.TableSchema(
        [
            NumericColumn("age", lower=18, upper=90, integer=True),
            BooleanColumn("smokes"),
        ]
    )
    sampler = skdpot.DPSlicedFlowSampler(epsilon=2.0, bounds=(-1, 1), n_steps=20, device="cpu")
    yield "DPSlicedFlowSampler", 15, lambda: sampler.fit(X)
    synthesizer = skdpot.DPTableSynthesizer(schema, target="smokes")
    yield "DPTableSynthesizer", 15, lambda: synthesizer.fit(table)
    classifier = skdpot.FairPrivateClassifier(epsilon=3.0, device="cpu")
    yield "FairPrivateClassifier", 16, lambda: classifier.fit(X, y, sensitive_features=group)


def main() -> None:
    """Print the table."""
    sizes = {top: rooms(top) for top in ("skdpot", "tests")}
    total = {top: sum(found.values(), Counter[str]()) for top, found in sizes.items()}
    rows = [
        ("lines of code", total["skdpot"]["code"], 22_000),
        ("lines of docstrings", total["skdpot"]["docstring"], 11_000),
        ("files", total["skdpot"]["files"], 140),
        ("lines of tests", total["tests"]["code"], 25_000),
        ('files that name the mechanism "presample"', len(mentions("presample")), 4),
        ("groups of files that import each other", len(circles()), 0),
    ]
    warnings.simplefilter("ignore")
    walks = {}
    for name, target, fit in fits():
        fit()  # imports are no part of the walk
        walks[name] = walked(fit)
        functions = sum(map(len, walks[name].values()))
        rows.append(
            (f"files that {name}.fit passes ({functions} functions)", len(walks[name]), target)
        )
    for row, found, target in rows:
        print(f"{row:60} {found:7,}   at most {target:6,}   {'' if found <= target else 'over'}")
    if "--rooms" in sys.argv:
        for top, found in sizes.items():
            for room, size in sorted(found.items()):
                print(f"{top}/{room:16}", *(f"{size[key]:7,} {key}" for key in size))
    if "--walk" in sys.argv:
        for name, files in walks.items():
            print(name)
            for path, functions in sorted(files.items()):
                print(f"    {path.relative_to(ROOT)}  {len(functions)}")


if __name__ == "__main__":
    main()
