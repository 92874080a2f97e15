"""Reports and notebook cards: HTML from the templates beside this file, with all text escaped.

A report is dark on white on every page; a card takes the colours of its page.
"""

from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any

from skdpot._utils.files import write_file


@cache
def _environment() -> Any:
    # Imported here because most programs that use a budget never show one.
    from jinja2 import Environment, PackageLoader, StrictUndefined
    from markupsafe import Markup, escape

    def kept(text: str) -> Markup:
        """Escape text in one line, and keep numbers and the signs after them together."""
        lines = (line.strip() for line in str(escape(text)).strip("\n ").split("\n"))
        flat = " ".join(filter(None, lines))
        return Markup(flat.replace(" %", "&nbsp;%").replace("ε ≥ ", "ε&nbsp;≥&nbsp;"))

    environment = Environment(
        loader=PackageLoader("skdpot._utils"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters["kept"] = kept
    return environment


def render(template: str, **facts: object) -> str:
    """Return a template filled with values."""
    return _environment().get_template(template).render(**facts)


def html_card(
    title: str,
    aside: str,
    facts: Iterable[tuple[str, str]] | None = None,
    *,
    meter: tuple[float, str, str] | None = None,
    rankings: Iterable[tuple[str, Iterable[tuple[str, str]]]] = (),
    template: str = "card.html",
    **more: object,
) -> str:
    """Return a card: a bar with a text below each end, a table of facts, tables with captions."""
    parts = {"facts": facts, "meter": meter, "rankings": rankings}
    return render(template, title=title, aside=aside, **parts, **more)


class HtmlReport:
    """A report that is a page by itself."""

    @property
    def _title(self) -> str:
        raise NotImplementedError

    def _repr_html_(self) -> str:
        raise NotImplementedError

    def to_html(self, path: str | Path | None = None) -> str:
        """Return the report as one page that needs no other file."""
        text = render("page.html", title=self._title, fragment=self._repr_html_())
        if path is not None:
            write_file(path, lambda draft: draft.write_text(text, encoding="utf-8"))
        return text
