"""Print the lowest version of each dependency that pyproject.toml declares, as constraints of pip.

python tools/lowest.py [NAME ...]       all but the dependencies of these names
"""

import re
import sys
import tomllib
from pathlib import Path

project = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text())["project"]
for requirement in project["dependencies"]:
    name, lowest = re.fullmatch(r"([\w-]+)>=([\d.]+)", requirement).groups()
    if name not in sys.argv[1:]:
        print(f"{name}=={lowest}")
