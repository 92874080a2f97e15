"""Numbers, events and notebook cards as text; cards take the page's colours, light or dark."""

import math
from collections.abc import Iterable
from dataclasses import fields
from decimal import ROUND_CEILING, ROUND_FLOOR, Context
from html import escape

from skdpot.privacy.events import Event

__all__ = [
    "describe_event",
    "epsilon_text",
    "html_card",
    "html_meter",
    "html_ranking",
    "html_table",
    "rounded_down",
    "rounded_up",
]

_STYLE = """<style>
.skdpot-card{all:revert;font:14px/1.45 system-ui,-apple-system,"Segoe UI",Roboto,sans-serif;
 font-variant-numeric:tabular-nums;color:inherit;box-sizing:border-box;width:100%;max-width:34rem;
 padding:.9rem 1.1rem 1rem;border:1px solid rgba(128,128,128,.35);border-radius:10px;
 text-align:left;overflow-wrap:anywhere}
.skdpot-card *{box-sizing:border-box}
.skdpot-card .head{display:flex;justify-content:space-between;align-items:baseline;gap:1rem}
.skdpot-card .title{font-weight:650;font-size:15px}
.skdpot-card .aside{opacity:.7;font-size:13px;white-space:nowrap}
.skdpot-card .meter{height:10px;margin:.7rem 0 .35rem;border-radius:5px;overflow:hidden;
 background:rgba(128,128,128,.24)}
.skdpot-card .meter>div{height:100%;min-width:2px;border-radius:5px}
.skdpot-card .ends{display:flex;justify-content:space-between;font-size:13px}
.skdpot-card .ends span:last-child{opacity:.7}
.skdpot-card .part{margin:.85rem 0 .2rem;font-size:12px;opacity:.7}
.skdpot-card table{all:revert;width:100%;margin:.3rem 0 0;border-collapse:collapse;border:0;
 font-size:13px;color:inherit;background:none}
.skdpot-card tr{background:none!important;border:0}
.skdpot-card td,.skdpot-card th{padding:.26rem 0;border:0;border-top:1px solid
 rgba(128,128,128,.22);text-align:left;vertical-align:top;font-weight:400;white-space:normal;
 max-width:none;color:inherit}
.skdpot-card th{opacity:.7;width:8.5rem;padding-right:1rem}
.skdpot-card .number{text-align:right;white-space:nowrap;padding-left:1rem;width:1%}
</style>"""

_CALM, _WATCH, _FULL = "#2a9d8f", "#d9902f", "#d1495b"


def html_card(title: str, aside: str, *parts: str) -> str:
    """Return a card; `parts` are HTML, `title` and `aside` are text."""
    return (
        f'{_STYLE}<div class="skdpot-card"><div class="head">'
        f'<span class="title">{escape(title)}</span><span class="aside">{escape(aside)}</span>'
        f"</div>{''.join(parts)}</div>"
    )


def html_meter(share: float, left: str, right: str) -> str:
    """Return a bar filled to `share`, with a text below each end."""
    share = min(max(share, 0.0), 1.0)
    colour = _CALM if share < 0.75 else _WATCH if share < 0.999 else _FULL
    percent = f"{100.0 * share:.2f}%"
    fill = f'<div style="width:{percent};background:{colour}"></div>' if share > 0.0 else ""
    return (
        f'<div class="meter" role="img" aria-label="{percent} spent">{fill}</div>'
        f'<div class="ends"><span>{escape(left)}</span><span>{escape(right)}</span></div>'
    )


def html_table(rows: Iterable[tuple[str, str]]) -> str:
    """Return a table of headings and their values."""
    cells = (
        f'<tr><th scope="row">{escape(heading)}</th><td>{escape(value)}</td></tr>'
        for heading, value in rows
    )
    return f"<table><tbody>{''.join(cells)}</tbody></table>"


def html_ranking(caption: str, rows: Iterable[tuple[str, str]]) -> str:
    """Return a captioned table of names, each with a number on the right."""
    cells = (
        f'<tr><td>{escape(name)}</td><td class="number">{escape(number)}</td></tr>'
        for name, number in rows
    )
    heading = f'<div class="part">{escape(caption)}</div>'
    return f"{heading}<table><tbody>{''.join(cells)}</tbody></table>"


def describe_event(event: Event) -> str:
    """Write an event with the fields that were chosen, without its relation."""
    chosen: list[str] = []
    for item in fields(event):
        value = getattr(event, item.name)
        if item.name == "relation" or value == item.default:
            continue
        if item.name == "events":
            chosen.extend(map(describe_event, value))
        else:
            chosen.append(f"{item.name}={value!r}")
    return f"{type(event).__name__}({', '.join(chosen)})"


def epsilon_text(epsilon: float) -> str:
    """Write an epsilon that was asked for or spent, rounded up."""
    return "ε = ∞" if math.isinf(epsilon) else f"ε = {rounded_up(epsilon)}"


def rounded_down(value: float) -> str:
    """Write a number with four digits and never more than it is."""
    return _rounded(value, ROUND_FLOOR)


def rounded_up(value: float) -> str:
    """Write a number with four digits and never less than it is."""
    return _rounded(value, ROUND_CEILING)


def _rounded(value: float, rounding: str) -> str:
    """Round the shortest decimal number that a float prints as, so that 0.1 stays 0.1."""
    if not math.isfinite(value):
        return str(value)
    return f"{float(Context(prec=4, rounding=rounding).create_decimal(repr(float(value)))):.4g}"
