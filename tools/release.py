"""Check that a tag, the package, the citation and the changelog name one version, and build it.

python tools/release.py v1.2.3 DIRECTORY
"""

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]


def versions() -> dict[str, str]:
    """Return the version that each file states."""
    read = {
        "skdpot/__about__.py": r'^__version__ = "(.+)"$',
        "CITATION.cff": r"^version: (\S+)$",
        "doc/changelog.rst": r"^(\d\S*)\n-+$",
        "doc/papers.rst": r"version = \{(\S+)\}",
    }
    found = {}
    for name, pattern in read.items():
        match = re.search(pattern, (ROOT / name).read_text(encoding="utf-8"), re.M)
        found[name] = match[1] if match else "none"
    return found


if __name__ == "__main__":
    tag, directory = sys.argv[1:]
    wrong = {name: stated for name, stated in versions().items() if f"v{stated}" != tag}
    if wrong:
        raise SystemExit(f"{tag} is not the version of {wrong}.")
    subprocess.run(
        [sys.executable, "-m", "pip", "wheel", "--no-deps", "-w", directory, ROOT], check=True
    )
