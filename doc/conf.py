"""Configuration of the documentation."""

import re
import sys
from importlib.metadata import version as installed_version
from pathlib import Path

from numpydoc.docscrape import NumpyDocString

sys.path.insert(0, str(Path(__file__).parent))  # for extensions of our own

project = "skdpot"
author = "The skdpot developers"
project_copyright = "2026, The skdpot developers"
release = version = installed_version("skdpot")

extensions = [
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "numpydoc",
    "sphinx_gallery.gen_gallery",
    "mathml",
]
html_math_renderer = "mathml"
exclude_patterns = ["_build"]
templates_path = ["_templates"]
default_role = "py:obj"
highlight_language = "none"  # literal blocks are tables and output; doctests are highlighted anyway
nitpicky = False

autosummary_generate = True
autodoc_member_order = "bysource"
toc_object_entries_show_parents = "hide"
autodoc_typehints = "none"  # the docstrings say more, for people
numpydoc_show_class_members = False  # the template of classes lists them in full

sphinx_gallery_conf = {
    "examples_dirs": "../examples",
    "gallery_dirs": "auto_examples",
    "backreferences_dir": "generated/backreferences",  # for galleries of named files
    "filename_pattern": r"/plot_",
    "ignore_pattern": r"/benchmarks/|/engines/|/federated/|__init__\.py",
    "within_subsection_order": "FileNameSortKey",
    "thumbnail_size": (400, 280),
    "download_all_examples": False,
    "remove_config_comments": True,
    "show_memory": False,
    "write_computation_times": False,  # its page would load scripts from elsewhere
}

html_theme = "pydata_sphinx_theme"
html_title = f"skdpot {release}"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_context = {"default_mode": "light"}
html_theme_options = {
    "logo": {"text": "skdpot"},
    "header_links_before_dropdown": 7,
    "navbar_align": "left",
    "navbar_persistent": ["search-button"],
    "navigation_with_keys": False,
    "navigation_depth": 2,
    "show_nav_level": 1,
    "show_toc_level": 2,
    "show_prev_next": False,
    "secondary_sidebar_items": ["page-toc"],
    "footer_start": ["copyright"],
    "footer_end": ["theme-version"],
}
# Pages without pages below them need no list of these.
html_sidebars = {
    name: []
    for name in (
        "index",
        "api",
        "extending",
        "examples",
        "benchmarks",
        "changelog",
        "auto_examples/**",
    )
}
html_show_sourcelink = False

# numpydoc knows a fixed list of sections, warns of others, and renders none but its own.
NumpyDocString.sections["Privacy"] = []


_boxes = {}


def cut_privacy(app, what, name, obj, options, lines):
    """Take a docstring's Privacy section out, which numpydoc would not render."""
    # A shape such as (n_features_in_,) would be read as a link.
    lines[:] = [re.sub(r"\((\w+_),", r"(``\1``,", line) for line in lines]
    heads = [i for i in range(len(lines) - 1) if lines[i + 1] and set(lines[i + 1]) == {"-"}]
    start = next((i for i in heads if lines[i] == "Privacy"), None)
    if start is None:
        return
    end = min((i for i in heads if i > start), default=len(lines))
    text = ["   " + line if line else "" for line in lines[start + 2 : end]]
    _boxes[what, name] = [".. admonition:: Privacy", "   :class: privacy-note", "", *text, ""]
    del lines[start:end]


def show_privacy(app, what, name, obj, options, lines):
    """Show it as a box after the parameters, what is returned and what is raised."""
    box = _boxes.pop((what, name), None)
    if box is not None:
        after = (".. seealso::", ".. rubric::", ":Attributes:")
        place = (i for i, line in enumerate(lines) if line.startswith(after))
        first = next(place, len(lines))
        lines[first:first] = ["", *box]


def skip_foreign(app, what, name, obj, skip, options):
    """Leave out methods that scikit-learn, enum or Exception define."""
    home = getattr(getattr(obj, "fget", obj), "__module__", None) or ""
    return True if callable(obj) and not home.startswith("skdpot") else None


def setup(app):
    """Listen before and after numpydoc, whose priority is 500."""
    app.connect("autodoc-skip-member", skip_foreign)
    app.connect("autodoc-process-docstring", cut_privacy, priority=400)
    app.connect("autodoc-process-docstring", show_privacy, priority=600)
