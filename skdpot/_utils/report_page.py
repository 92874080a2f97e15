"""Reports as pages for a screen, a phone, and paper: HTML that needs nothing else."""

from collections.abc import Iterable
from datetime import datetime
from html import escape
from pathlib import Path

__all__ = [
    "HtmlReport",
    "box",
    "bullets",
    "escaped",
    "paragraphs",
    "picture",
    "report_fragment",
    "report_page",
    "table",
    "tiles",
]

# Colours are fixed, dark on white, whatever the page around it or the printer likes.
_STYLE = """<style>
.skdpot-report{all:revert;font:16px/1.55 system-ui,-apple-system,"Segoe UI",Roboto,sans-serif;
 color:#1c2127;background:#fff;max-width:48rem;margin:0 auto;padding:1.5rem 1.25rem 2rem;
 box-sizing:border-box;text-align:left;overflow-wrap:break-word;color-scheme:light}
.skdpot-report *{box-sizing:border-box}
.skdpot-report h1{font-size:1.75rem;line-height:1.2;margin:0 0 .2rem;color:#1c2127}
.skdpot-report h2{font-size:1.2rem;line-height:1.3;margin:2.2rem 0 .5rem;padding-top:.9rem;
 border-top:1px solid #d5dae1;color:#12395f;break-after:avoid}
.skdpot-report h3{font-size:1rem;margin:1.2rem 0 .3rem;color:#1c2127;break-after:avoid}
.skdpot-report p{margin:.5rem 0;color:#1c2127}
.skdpot-report ul{margin:.4rem 0;padding-left:1.3rem}
.skdpot-report li{margin:.25rem 0}
.skdpot-report .sub{color:#56606c;font-size:.9rem;margin:0}
.skdpot-report .tiles{display:grid;grid-template-columns:repeat(auto-fit,minmax(10.4rem,1fr));
 gap:.7rem;margin:1.2rem 0}
.skdpot-report .tile{border:1px solid #d5dae1;border-radius:8px;padding:.6rem .8rem .7rem}
.skdpot-report .tile .number{font-size:1.25rem;font-weight:650;line-height:1.3;
 white-space:nowrap;font-variant-numeric:tabular-nums}
.skdpot-report .tile .label{font-size:.82rem;line-height:1.35;color:#56606c}
.skdpot-report .box{border-left:5px solid;border-radius:4px;padding:.6rem .9rem;margin:.6rem 0;
 break-inside:avoid}
.skdpot-report .good{border-color:#1f7a5c;background:#eef7f3}
.skdpot-report .caution{border-color:#b3720a;background:#fdf6e9}
.skdpot-report .stop{border-color:#b3261e;background:#fcefee}
.skdpot-report .neutral{border-color:#7a8594;background:#f3f5f7}
.skdpot-report table{all:revert;width:100%;margin:.6rem 0;border-collapse:collapse;border:0;
 font-size:.9rem;line-height:1.45;color:#1c2127;background:#fff}
.skdpot-report tr{background:#fff!important;break-inside:avoid}
.skdpot-report td,.skdpot-report th{border:0;border-top:1px solid #e2e6eb;padding:.38rem .8rem
 .38rem 0;text-align:left;vertical-align:top;font-weight:400;white-space:normal;color:#1c2127;
 max-width:none}
.skdpot-report th{color:#56606c}
.skdpot-report tbody th{width:32%}
.skdpot-report .n{text-align:right;white-space:nowrap;font-variant-numeric:tabular-nums}
.skdpot-report td:last-child,.skdpot-report th:last-child{padding-right:0}
.skdpot-report img{display:block;max-width:100%;height:auto;margin:.8rem auto}
.skdpot-report code{font:13px/1.5 ui-monospace,SFMono-Regular,Menlo,Consolas,monospace;
 overflow-wrap:anywhere;color:#1c2127;background:none;padding:0;border:0}
.skdpot-report .meter{height:12px;margin:.7rem 0 .35rem;border-radius:6px;overflow:hidden;
 background:#e2e6eb}
.skdpot-report .meter>div{height:100%;min-width:2px;border-radius:6px}
.skdpot-report .ends{display:flex;justify-content:space-between;gap:1rem;font-size:.9rem}
@media (max-width:30rem){.skdpot-report{padding:1rem .9rem 1.5rem}
 .skdpot-report .tiles{grid-template-columns:1fr 1fr}
 .skdpot-report .tile .number{font-size:1.15rem}}
@media (max-width:36rem){.skdpot-report .stack thead{display:none}
 .skdpot-report .stack,.skdpot-report .stack tbody,.skdpot-report .stack tr,
 .skdpot-report .stack td{display:block;width:100%}
 .skdpot-report .stack tr{border-top:1px solid #e2e6eb;padding:.35rem 0}
 .skdpot-report .stack td{border:0;padding:.1rem 0}
 .skdpot-report .stack .n{display:flex;justify-content:space-between;gap:1rem}
 .skdpot-report .stack .n::before{content:attr(data-label);color:#56606c;white-space:normal;
  text-align:left}
 .skdpot-report .stack td:first-child{font-weight:650}}
@media print{.skdpot-report{font-size:10.5pt;max-width:none;padding:0}
 .skdpot-report *{-webkit-print-color-adjust:exact;print-color-adjust:exact}}
</style>"""


class HtmlReport:
    """A report that is a page of its own."""

    def to_html(self, path: str | Path | None = None) -> str:
        """Return the report as one page that needs nothing else.

        Parameters
        ----------
        path : str or path-like, optional
            Where to write it as well.

        Returns
        -------
        str
            HTML with its style and pictures inside; no scripts, nothing from the network.
        """
        text = self._page()
        if path is not None:
            Path(path).write_text(text, encoding="utf-8")
        return text

    def _page(self) -> str:
        raise NotImplementedError


def report_page(title: str, fragment: str) -> str:
    """Return a whole page.

    Parameters
    ----------
    title : str
        Text.
    fragment : str
        What `report_fragment` returned.

    Returns
    -------
    str
        HTML without scripts that loads nothing.
    """
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(title)}</title>\n<style>body{{margin:0;background:#fff}}@page{{margin:18mm}}"
        f"</style>\n</head>\n<body>\n{fragment}\n</body>\n</html>\n"
    )


def report_fragment(
    title: str,
    subject: str,
    created: datetime,
    version: str,
    head: Iterable[str],
    sections: Iterable[tuple[str, str]],
) -> str:
    """Return a report as a part of a page, for notebooks.

    Parameters
    ----------
    title, subject : str
        What the report is, and what it is about.
    created : datetime
        When it was made (UTC).
    version : str
        Of this package.
    head : iterable of str
        HTML that comes first.
    sections : iterable of (str, str)
        Titles, which are text, and bodies, which are HTML.

    Returns
    -------
    str
        HTML.
    """
    made = created.strftime("%d %B %Y, %H:%M UTC")
    parts = [
        _STYLE,
        '<article class="skdpot-report">',
        f"<h1>{escape(title)}</h1><p class='sub'>{escape(subject)} · made on {made} "
        f"with skdpot {escape(version)}</p>",
        *head,
    ]
    parts += [f"<section><h2>{escape(name)}</h2>{body}</section>" for name, body in sections]
    return "\n".join([*parts, "</article>"])


def tiles(facts: Iterable[tuple[str, str]]) -> str:
    """Return large figures with a few words each."""
    cells = (
        f'<div class="tile"><div class="number">{escape(number)}</div>'
        f'<div class="label">{escape(label)}</div></div>'
        for number, label in facts
    )
    return f'<div class="tiles">{"".join(cells)}</div>'


def escaped(text: str) -> str:
    """Escape text, and keep numbers and the signs after them on one line."""
    return escape(text).replace(" %", "&nbsp;%").replace("ε ≥ ", "ε&nbsp;≥&nbsp;")


def paragraphs(*texts: str) -> str:
    """Return a paragraph for each text."""
    return "".join(f"<p>{escaped(text)}</p>" for text in texts)


def bullets(items: Iterable[str]) -> str:
    """Return a list; texts that begin with a small letter elsewhere get a large one."""
    return (
        f"<ul>{''.join(f'<li>{escape(item[:1].upper() + item[1:])}</li>' for item in items)}</ul>"
    )


def box(kind: str, text: str) -> str:
    """Return a coloured box: good, neutral, caution or stop."""
    return f'<div class="box {kind}">{escaped(text)}</div>'


def picture(address: str, words: str) -> str:
    """Return a picture with words for those who do not see it."""
    return f'<img src="{address}" alt="{escape(words)}">'


def table(columns: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """Return a table with a head; all columns but the first hold numbers.

    Cells name their column for narrow screens, where a row becomes a block of lines.
    """
    columns = list(columns)
    heads = "".join(
        f"<th{' class=n' if i else ''}>{escape(column)}</th>" for i, column in enumerate(columns)
    )
    lines = "".join(
        "<tr>"
        + "".join(
            f'<td{" class=n" if i else ""} data-label="{escape(column)}">{escaped(cell)}</td>'
            for i, (column, cell) in enumerate(zip(columns, row, strict=True))
        )
        + "</tr>"
        for row in rows
    )
    return f'<table class="stack"><thead><tr>{heads}</tr></thead><tbody>{lines}</tbody></table>'
