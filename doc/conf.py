"""Configuration of the documentation."""

import re
from importlib.metadata import version as installed_version

from numpydoc.docscrape import NumpyDocString

project = "skdpot"
author = "The skdpot developers"
project_copyright = "2026, The skdpot developers"
release = version = installed_version("skdpot")

extensions = [
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.mathjax",
    "numpydoc",
    "sphinx_gallery.gen_gallery",
]
exclude_patterns = ["_build"]
templates_path = ["_templates"]
default_role = "py:obj"
nitpicky = False

autosummary_generate = True
autodoc_member_order = "bysource"
autodoc_typehints = "none"  # the docstrings say more, for people
numpydoc_show_class_members = False  # the template of classes lists them in full

sphinx_gallery_conf = {
    "examples_dirs": "../examples",
    "gallery_dirs": "auto_examples",
    "filename_pattern": r"/plot_",
    "ignore_pattern": r"/benchmarks/|__init__\.py",
    "download_all_examples": False,
    "remove_config_comments": True,
    "show_memory": False,
}

html_theme = "pydata_sphinx_theme"
html_title = "skdpot"
html_theme_options = {
    "logo": {"text": "skdpot"},
    "show_prev_next": False,
    "navigation_with_keys": False,
    "secondary_sidebar_items": ["page-toc"],
}
html_sidebars = {"index": [], "privacy": [], "sketch": [], "benchmarks": []}
html_show_sourcelink = False

# numpydoc knows a fixed list of sections and warns of others.
NumpyDocString.sections["Privacy"] = []


def privacy_to_notes(app, what, name, obj, options, lines):
    """Show a docstring's Privacy section as the first note, for numpydoc renders no others."""
    # A shape such as (n_features_in_,) would be read as a link.
    lines[:] = [re.sub(r"\((\w+_),", r"(``\1``,", line) for line in lines]
    heads = [i for i in range(len(lines) - 1) if lines[i + 1] and set(lines[i + 1]) == {"-"}]
    start = next((i for i in heads if lines[i] == "Privacy"), None)
    if start is None:
        return
    end = min((i for i in heads if i > start), default=len(lines))
    moved = ["**Privacy.**", *lines[start + 2 : end], ""]
    del lines[start:end]
    notes = next((i for i in range(len(lines) - 1) if lines[i : i + 2] == ["Notes", "-----"]), None)
    if notes is None:
        lines += ["", "Notes", "-----", *moved]
    else:
        lines[notes + 2 : notes + 2] = moved


def skip_foreign(app, what, name, obj, skip, options):
    """Leave out methods that scikit-learn, enum or Exception define."""
    home = getattr(getattr(obj, "fget", obj), "__module__", None) or ""
    return True if callable(obj) and not home.startswith("skdpot") else None


def setup(app):
    """Listen before numpydoc, whose priority is 500."""
    app.connect("autodoc-skip-member", skip_foreign)
    app.connect("autodoc-process-docstring", privacy_to_notes, priority=400)
