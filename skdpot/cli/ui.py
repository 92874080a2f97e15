"""``skdpot ui``: a local web page for the other commands.

The page runs each command in a process of its own and shows its messages. Its own process never
opens the table. The user confirms the schema on the screen, which is stored with the button and not
guessed again.

The page, its files and pictures, and its socket lie under a path that holds a secret.
"""

import asyncio
import json
import os
import re
import secrets
import shlex
import shutil
import socket
import sys
import tempfile
import threading
import webbrowser
from argparse import Namespace
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from ipaddress import ip_address
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np

from skdpot.cli.console import USAGE, CommandError, Console, explain
from skdpot.cli.payment import fitting_delta
from skdpot.privacy.budget import PrivacyBudget
from skdpot.privacy.targets import PrivacyTarget
from skdpot.tables.bins import MAX_BINS
from skdpot.tables.column_base import TableColumn
from skdpot.tables.plan import plan_marginals
from skdpot.tables.row_map import RowMap
from skdpot.tables.schema import TableSchema

_SUFFIXES = (".csv", ".tsv", ".gz", ".parquet", ".pq")
_REMOTE = (
    "{} can be reached from other computers. Whoever knows or overhears the address of the page, "
    "which is not encrypted, can read the tables of its folder and spend the budget. Omit --host, "
    "or pass --allow-network if this is what you want."
)
_ELSEWHERE = (
    "Only files in {} can be named here, tables with the endings {}. The option --folder of "
    "`skdpot ui` sets another folder."
)
_HERE = "This page runs on your computer alone. The table is not sent anywhere."
_THERE = "Whoever knows the address of this page can use it. The connection is not encrypted."
_GUESSED = (
    "This was guessed from the values of the table. Everything that you confirm becomes public, "
    "and no privacy budget covers it. Read it as a person in the table would. You confirm what is "
    "shown here, even if the file changes in the meantime."
)
_CONFIRM = "All of this may become public"
_UNSTATED = "Say how {} is to be read (“{}”), or choose something else. Then you can confirm."
_REFUSED = "What you chose cannot be done: see below. The columns are shown as they were before."
# Treatments of a column: the option of `skdpot schema`, and an example of its value.
_AS_PROPOSED = "as proposed"
_TREATMENTS = {
    _AS_PROPOSED: ("", ""),
    "estimate privately": ("--private={0}", ""),
    "leave out": ("--leave-out={0}", ""),
    "state bounds": ("--range={0}={1}", "0..120"),
    "list all values": ("--category={0}", ""),
    "read as dates": ("--date={0}={1}", "%d/%m/%Y"),
    "read as numbers": ("--number={0}={1}", "1,234.50 EUR"),
    "read as yes and no": ("--boolean={0}", ""),
}
_MATTERS = {
    "left out": "It will not be in the synthetic table. That the column exists is public.",
    "datetime": "The first and the last date become public. State others if they tell of a person.",
    "scale": "Both bounds become public. If they are the value of one person, state others.",
    "categorical": "Each category becomes public, even one that a single person has.",
    "boolean": "Only what the values mean becomes public: it tells of no one.",
    "open": "Estimated at a part of ε: nothing about single values becomes public.",
}
_SPREAD = 4.0  # standard deviations of noise at which values can be told apart
# Options in notes of the commands, in the words of the page.
_OPTIONS = {
    r"; --rule .*": ".",
    r"--private COLUMN": "“estimate privately”",
    r"--category COLUMN lists": "“list all values” lists",
    r"--date COLUMN=(\S+) or =(\S+?)\.": r"“read as dates”, \1 or \2.",
    r"--number COLUMN=(\S+) or =(\S+?)\.": r"“read as numbers”, \1 or \2.",
    r"--guard-formulas": "“for spreadsheets”",
    r"^--[a-z]+ ": "",
}
_STYLE = """
.q-card { width: 100% } iframe { width: 100%; height: 80vh; border: 1px solid #ddd }
.told { max-height: 9em; overflow: auto; overflow-wrap: anywhere }
.q-drawer .head { flex-wrap: wrap } .q-footer { max-height: 40vh; overflow: auto }
"""


def run_ui(args: Namespace, console: Console) -> None:
    """Serve the page until the program is stopped."""
    host = "127.0.0.1" if args.host == "localhost" else args.host
    try:
        is_here = ip_address(host).is_loopback
    except ValueError:
        raise CommandError(f"--host {host}: write an IP address.", USAGE) from None
    if not is_here and not args.allow_network:
        raise CommandError(_REMOTE.format(host))
    folder = Path(args.folder).expanduser().resolve()
    if not folder.is_dir():
        raise CommandError(f"--folder {args.folder} is not a folder.", USAGE)
    try:
        from nicegui import app, ui
    except ModuleNotFoundError:
        raise CommandError("the page needs NiceGUI: pip install nicegui") from None
    from fastapi import FastAPI
    from starlette.middleware.trustedhost import TrustedHostMiddleware
    from uvicorn import Config, Server

    outer = FastAPI(openapi_url=None)
    if is_here:  # refuse web sites whose name resolves to this computer
        outer.add_middleware(TrustedHostMiddleware, allowed_hosts=[host, f"[{host}]", "localhost"])
    secret = f"/{secrets.token_urlsafe(16)}"
    ui.run_with(outer, title="skdpot", mount_path=secret, show_welcome_message=False)
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as held:
        held.bind((host, args.port))  # kept open: no other program can take the address
        shown = f"[{host}]" if ":" in host else host
        address = f"http://{shown}:{held.getsockname()[1]}{secret}/"
        opening = Opening(address)
        if not args.no_browser:
            app.on_startup(opening.start)
        app.on_shutdown(opening.end)
        app.on_connect(opening.end)
        where = _HERE if is_here else _THERE
        ui.page("/")(lambda: Page(ui, app, folder, args.data, where, prefix=secret).build())
        console.say(f"{address}\n{where} Stop it with Ctrl+C.\n")
        with suppress(KeyboardInterrupt):
            config = Config(outer, log_level="warning", proxy_headers=False, ws_max_size=2**20)
            Server(config).run(sockets=[held])


class Opening:
    """A file, readable by its owner alone, that leads a browser to the page.

    All users of a computer see the arguments of a process; the address with its secret must not be
    among them.
    """

    def __init__(self, address: str) -> None:
        self._address = address
        self._folder: str | None = None

    def start(self) -> None:
        """Open a browser in a thread."""
        self._folder = tempfile.mkdtemp(prefix="skdpot-")  # of mode 0700
        place = Path(self._folder) / "open.html"
        place.touch(mode=0o600)
        text = f'<meta http-equiv="refresh" content="0; url={self._address}">'
        place.write_text(text, encoding="utf-8")
        threading.Thread(target=webbrowser.open, args=[place.as_uri()], daemon=True).start()

    def end(self) -> None:
        """Remove the file."""
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)


def planned_noise(
    schema: TableSchema, n_rows: int, epsilon: float, delta: float
) -> tuple[float, list[tuple[str, str]]]:
    """Return the noise of single columns, and its effect on each, by public facts."""
    rules = RowMap(schema)
    plan = plan_marginals(PrivacyTarget(epsilon, delta), rules.model, n_rows)
    sigma = float(plan.marginal_sigmas("columns", np.ones(len(rules.model)))[0])
    chosen = plan.schema.categories
    fewest = 0.0 if chosen is None else getattr(chosen.event, "threshold", 0.0)
    told = (_left_of(column, rules, n_rows, sigma, fewest) for column in schema)
    return sigma, list(zip(schema.names, told, strict=True))


def _left_of(column: TableColumn, rules: RowMap, n_rows: int, sigma: float, fewest: float) -> str:
    if column.name in rules.constants:
        return "one value: nothing is spent on it"
    if column.name not in rules.model.names:
        return "known from other columns and a rule"
    if not column.is_resolved:
        if column.on_scale:
            return "bounds are estimated first, at a part of ε"
        return f"values that fewer than about {fewest:,.0f} rows have become “other”"
    seen = _SPREAD * sigma
    if column.on_scale:
        n_bins = int(np.clip(n_rows / max(seen, 1e-9), 1, min(MAX_BINS, column.grid().n_cells)))
        return f"told apart in about {n_bins} ranges"
    n_values = column.grid().n_cells
    each = n_rows / n_values
    text = f"{n_values:,} values, {each:,.0f} rows each on average"
    return f"{text}: rare ones drown in it" if each < seen else f"{text}, ± {sigma / each:.1%}"


def _in_words(text: str) -> str:
    """Return a message of a command in the words of the page."""
    for pattern, words in _OPTIONS.items():
        text = re.sub(pattern, words, text)
    return text


class Page:
    """The page as one visitor sees it."""

    def __init__(
        self,
        ui: Any,
        app: Any,
        folder: Path,
        data: str | None = None,
        where: str = _HERE,
        prefix: str = "",
    ) -> None:
        self.ui, self.app, self.folder, self.where, self.prefix = ui, app, folder, where, prefix
        # The path on the command line may lie outside the folder.
        self.started_with = None if data is None else str(Path(data).expanduser().resolve())
        self.data: Path | None = None
        self.choices: dict[str, tuple[str, str]] = {}  # treatment and value by column
        self.facts: dict[str, Any] = {}
        self.shown: object = None  # identifies the proposal that can be confirmed
        self.last, self.changed = "", None  # the last changed column and its row
        self.place: Path | None = None  # folder of the results

    def build(self) -> None:
        """Lay the page out."""
        ui = self.ui
        ui.colors(primary="#1f5673")
        ui.add_css(_STYLE)
        with ui.left_drawer().classes("bg-grey-2") as drawer:
            ui.label("Ledger").classes("text-h6")
            ui.label("All charges for the people in this table.").classes("text-grey-8")
            self.ledger = ui.input("file", on_change=self._show_ledger).classes("w-full")
            self.ledger_card = ui.column().classes("w-full")
        with ui.header().classes("items-center no-wrap q-py-xs"):
            ui.button(icon="menu", on_click=drawer.toggle).props("flat color=white")
            ui.label("A synthetic table under differential privacy").classes("text-subtitle1")
        with ui.column().classes("w-full max-w-4xl mx-auto"):
            ui.label(self.where).classes("text-grey-8")
            self.cards = [ui.column().classes("w-full") for _ in range(4)]
        self.footer = ui.footer(value=False).classes("bg-white text-black shadow-4")
        with self.footer:
            self.busy = ui.column().classes("w-full gap-0")
            with self.busy:
                self.doing = ui.label()
                self.bar = ui.linear_progress(0.0, show_value=False).props("instant-feedback")
            self.messages = ui.column().classes("w-full gap-1")
            close = ui.button("Close", on_click=lambda: self.footer.set_value(False)).props("flat")
            close.bind_visibility_from(self.busy, "visible", backward=lambda busy: not busy)
        self._build_choice()
        if self.started_with is not None:
            ui.timer(0.1, partial(self._choose, self.started_with), once=True)

    def file(self, text: str, endings: tuple[str, ...] = ()) -> Path:
        """Return a file of the folder, links followed; refuse others."""
        with suppress(RuntimeError, ValueError, OSError):  # text that is no path
            path = (self.folder / Path(text).expanduser()).resolve()
            inside = path.is_relative_to(self.folder) and path.name.endswith(endings or "")
            if inside or str(path) == self.started_with:
                return path
        raise CommandError(_ELSEWHERE.format(self.folder, ", ".join(_SUFFIXES)))

    # ------------------------------------------------------------------- running commands

    async def _call(self, what: str, *words: str) -> dict[str, Any] | None:
        """Run a command, show its progress and messages; return its result, None if it failed."""
        if words[0] != "report":  # keeps the warnings of the release before it
            self.messages.clear()
        self.doing.text, self.bar.value = what, 0.0
        self.footer.value = self.busy.visible = True
        # -P: files of the folder, such as random.py, are not imported.
        command = (sys.executable, "-P", "-m", "skdpot.cli.main", *words, "--json", "--progress")
        pipe, environment = asyncio.subprocess.PIPE, os.environ | {"PYTHONUTF8": "1"}
        process = await asyncio.create_subprocess_exec(
            *command, stdout=pipe, stderr=pipe, env=environment
        )
        streams: Any = process
        result = asyncio.create_task(streams.stdout.read())
        told = ""
        while piece := await streams.stderr.read(4096):
            told += piece.decode(errors="replace")
            if shares := re.findall(r"(?<!\d)(\d+)%\|", told):
                self.bar.value = int(shares[-1]) / 100
        out = (await result).decode()
        self._tell(re.findall(r"skdpot.*?: (warning|error): (.*)", told))
        return json.loads(out) if await process.wait() == 0 else None

    def _tell(self, messages: list[tuple[str, str]]) -> None:
        with self.messages:
            for level, text in messages:
                colour = "bg-red-2" if level == "error" else "bg-amber-2"
                self.ui.label(_in_words(text)).classes(f"{colour} w-full q-pa-sm rounded-borders")
        self.busy.visible = False
        self.footer.value = bool(list(self.messages))

    @contextmanager
    def _refusals(self) -> Iterator[None]:
        """Show why an input is refused."""
        self.messages.clear()
        try:
            yield
        except Exception as error:
            self._tell([("error", explain(error)[0])])

    @contextmanager
    def _card(self, number: int, title: str) -> Iterator[None]:
        """Fill a card, clear the later ones, and show it."""
        for card in self.cards[number - 1 :]:
            card.clear()
            card.visible = True
        with self.cards[number - 1], self.ui.card():
            self.ui.label(f"{number}. {title}").classes("text-h6")
            yield
            if number > 1:
                changed = self.changed if number == 2 else None
                place = f"getHtmlElement({(changed or self.cards[number - 1]).id})"
                how = f"{{behavior: 'smooth', block: '{'center' if changed else 'start'}'}}"
                self.ui.run_javascript(f"{place}.scrollIntoView({how})")

    def _show_ledger(self) -> None:
        self.ledger_card.clear()
        with self.ledger_card:
            try:
                path = self.file(self.ledger.value or "")
                if not path.exists() or path.is_dir():
                    self.ui.label("Nothing is spent yet: the first run makes this file.")
                    return
                text = PrivacyBudget.from_ledger(path)._repr_html_()
            except Exception as error:  # the file may be anything
                self.ui.label(explain(error)[0])
            else:
                self.ui.html(text, sanitize=False).classes("w-full")

    # ------------------------------------------------------------------- 1: a table

    def _build_choice(self) -> None:
        ui = self.ui
        with self._card(1, "Choose a private table"):
            files = sorted(p.name for p in self.folder.iterdir() if p.suffix in _SUFFIXES)
            ui.radio(files, on_change=lambda event: self._choose(event.value))
            with ui.row().classes("items-center w-full"):
                path = ui.input("path of another CSV or Parquet file").classes("grow")
                ui.button("Read", on_click=lambda: self._choose(path.value))
            with ui.expansion("How text files are written").classes("w-full"):
                self.separator = ui.input("separator, if it is no comma")
                self.encoding = ui.input("encoding", value="utf-8")
                self.missing = ui.input("text of a missing value, besides the usual ones")

    def _form(self) -> list[str]:
        """Return how text files are written, as options."""
        stated = {"sep": self.separator, "missing": self.missing, "encoding": self.encoding}
        return [f"--{name}={field.value}" for name, field in stated.items() if field.value]

    async def _choose(self, path: str) -> None:
        with self._refusals():
            self.data = self.file(path, _SUFFIXES)
            self.choices, self.facts, self.place = {}, {}, None
            self.last, self.changed = "", None
            self.ledger.value = f"{self._stem}-ledger.db"
            self._show_ledger()
            await self._propose()

    @property
    def _stem(self) -> str:
        return str(self.data and self.data.name.split(".")[0])

    # ------------------------------------------------------------------- 2: what is public

    async def _propose(self) -> None:
        self.shown = turn = object()
        for card in self.cards[1:]:  # an outdated proposal cannot be confirmed
            card.visible = False
        problem = self._unstated()
        if not problem:
            options = [
                _TREATMENTS[treatment][0].format(name, detail)
                for name, (treatment, detail) in self.choices.items()
                if treatment != _AS_PROPOSED
            ]
            words = ("schema", str(self.data), "--show", *self._form(), *options)
            facts = await self._call("Reading the table …", *words)
            if self.shown is not turn:  # the user changed something in the meantime
                return
            self.facts, problem = facts or self.facts, "" if facts else _REFUSED
        if self.facts:
            self._build_proposal(problem)

    def _unstated(self) -> str:
        """Return the request for a value that a chosen treatment needs, "" if none."""
        for name, (treatment, detail) in self.choices.items():
            if _TREATMENTS[treatment][1] and not detail:
                return _UNSTATED.format(name, treatment)
        return ""

    def _build_proposal(self, problem: str) -> None:
        """Show a schema; it can be confirmed unless there is a problem."""
        ui, facts = self.ui, self.facts
        with self._card(2, "Confirm what is public"):
            ui.label(_GUESSED)
            rows = "Their number is public as well, unless persons have several rows."
            ui.label(f"{facts['rows']:,} rows. {rows}")
            for column in facts["columns"]:
                self._build_column(**{name.replace(" ", "_"): c for name, c in column.items()})
            kept = []
            for order in facts["orders"]:
                text = "In every row “{smaller}” is not after “{larger}”. Keep it so."
                kept.append((order, ui.checkbox(text.format(**order), value=True)))
            if problem:
                ui.label(problem).classes("bg-red-2 w-full q-pa-sm rounded-borders")
                return
            agreed = ui.checkbox(_CONFIRM).classes("text-weight-bold")
            confirm = ui.button("Confirm", on_click=partial(self._confirm, self.shown, facts, kept))
            confirm.bind_enabled_from(agreed, "value")

    def _build_column(self, column: str, kind: str, read_as: str, why: str, note: str) -> None:
        ui = self.ui
        treatment, detail = self.choices.get(column, (_AS_PROPOSED, ""))
        with ui.row().classes("w-full border-t q-py-sm items-start justify-between") as row:
            if column == self.last:
                self.changed = row
            with ui.column().classes("gap-0 grow basis-72"):
                with ui.row().classes("items-center"):
                    ui.label(column).classes("text-weight-bold")
                    ui.badge(kind, color="grey" if kind == "left out" else "primary")
                ui.label(read_as).classes("told")
                note = _in_words(note)
                ui.label(why).classes("text-grey-8")
                if note:
                    ui.label(note[0].upper() + note[1:]).classes("told text-deep-orange-9")
                matter = "open" if "privately" in read_as else kind
                ui.label(_MATTERS.get(matter, _MATTERS["scale"])).classes("text-italic")
            with ui.column().classes("gap-0 w-52"):
                ui.select(
                    list(_TREATMENTS),
                    value=treatment,
                    on_change=lambda event: self._treat(column, event.value),
                ).props("dense").classes("w-full")
                if example := _TREATMENTS[treatment][1]:
                    how = ui.input(f"such as {example}", value=detail).classes("w-full")
                    how.props("" if detail else "error")
                    how.on("keydown.enter", lambda: self._treat(column, treatment, how.value))
                    how.on("blur", lambda: self._treat(column, treatment, how.value))

    async def _treat(self, column: str, treatment: str, detail: str = "") -> None:
        if self.choices.get(column) != (treatment, detail):
            self.choices[column], self.last = (treatment, detail), column
            await self._propose()

    def _confirm(self, shown: object, facts: dict[str, Any], orders: list[tuple[Any, Any]]) -> None:
        """Write the schema on the screen, with the rules that the user keeps."""
        if shown is not self.shown:
            return
        with self._refusals():
            rules = [order for order, keep in orders if keep.value]
            stated = facts["schema"] | {"rules": rules}
            self.schema = TableSchema.from_json(json.dumps(stated)).confirm()
            if self.place is None:
                places = (self.folder / f"{self._stem}-synthetic-{n}" for n in count(1))
                self.place = next(place for place in places if not os.path.lexists(place))
                self.place.mkdir()
            self.schema.to_json(self.place / "schema.json")
            self._build_noise()

    # ------------------------------------------------------------------- 3: the noise

    def _build_noise(self) -> None:
        ui, names = self.ui, [column["column"] for column in self.facts["columns"]]
        self.unit: Any = None
        with self._card(3, "Set the noise"):
            ui.label(
                "ε is what the release may tell of each person: 1 is common, less is safer. The "
                "table below follows from public facts. Nothing is spent before you run it."
            )
            with ui.row().classes("items-end"):
                self.epsilon = ui.number("ε", value=1.0, min=0.001, on_change=self._show_noise)
                self.delta = ui.number("δ", value=self._delta(), on_change=self._show_noise)
                self.cap = ui.number("cap of a new ledger", value=3.0, min=0.001)
            matters = "column that the others should predict, if one matters most"
            self.target = ui.select(list(self.schema.names), label=matters, clearable=True)
            persons = "column that identifies the person, if a person has several rows"
            self.unit = ui.select(
                names, label=persons, clearable=True, on_change=self._choose_delta
            )
            for field in (self.target, self.unit):
                field.classes("w-full")
            spreadsheet = "for spreadsheets: write ' before texts that would run as formulas"
            self.guard = ui.checkbox(spreadsheet)
            self.noise = ui.column().classes("w-full")
            self._show_noise()
            ui.button("Run", on_click=self._run_alone).props("size=lg")

    def _delta(self) -> float:
        """Return the delta of the ledger, or one for the number of rows if that is public."""
        if (path := self.file(self.ledger.value)).exists():
            return PrivacyBudget.from_ledger(path).delta
        return fitting_delta(None if self.unit and self.unit.value else self.facts["rows"])

    def _choose_delta(self) -> None:
        """Update a delta that follows from the number of rows."""
        if self.delta.value in map(fitting_delta, (self.facts["rows"], None)):
            self.delta.value = self._delta()

    def _show_noise(self) -> None:
        self.noise.clear()
        n_rows = self.facts["rows"]
        with self.noise:
            try:
                epsilon, delta = self.epsilon.value or 0.0, self.delta.value or 0.0
                sigma, rows = planned_noise(self.schema, n_rows, epsilon, delta)
            except Exception as error:  # about typed values; no private value is involved
                self.ui.label(explain(error)[0])
                return
            self.ui.label(
                f"Each count of a column gets noise of standard deviation {sigma:,.1f} rows, "
                f"{sigma / n_rows:.2%} of the table. Groups of fewer than about "
                f"{_SPREAD * sigma:,.0f} rows cannot be told from it."
            ).classes("text-weight-bold")
            cells = [{"column": name, "what the noise leaves": text} for name, text in rows]
            table = self.ui.table(rows=cells, column_defaults={"align": "left"})
            table.props("dense flat wrap-cells").classes("w-full")

    # ------------------------------------------------------------------- 4: the release

    async def _run_alone(self, click: Any) -> None:
        """Run once, even if the button is pressed again: each run is charged."""
        click.sender.disable()
        try:
            await self._run()
        finally:
            click.sender.enable()

    async def _run(self) -> None:
        self.cards[3].clear()
        with self._refusals():
            ledger, place = self.file(self.ledger.value), Path(str(self.place))
            suffix = ".parquet" if str(self.data).endswith((".parquet", ".pq")) else ".csv"
            names = (f"synthetic{suffix}", "quality.html", "fit.safetensors", "privacy.html")
            table, quality, fit, privacy = (str(place / name) for name in names)
            words = [
                *("synth", str(self.data), f"--schema={place / 'schema.json'}"),
                *(f"--epsilon={self.epsilon.value}", f"--delta={self.delta.value}"),
                *(f"--ledger={ledger}", f"--output={table}", f"--report={quality}"),
                *(f"--save={fit}", "--force", *self._form()),
            ]
            words += [f"--target={self.target.value}"] if self.target.value else []
            words += [f"--unit={self.unit.value}"] if self.unit.value else []
            words += ["--guard-formulas"] if self.guard.value else []
            if not ledger.exists():
                words.append(f"--epsilon-cap={max(self.cap.value or 0, self.epsilon.value or 0)}")
            facts = await self._call("Releasing noisy counts and drawing rows …", *words)
            self._show_ledger()
            if facts is None:
                return
            words_of_report = (
                "report",
                fit,
                f"--ledger={ledger}",
                f"--output={privacy}",
                "--force",
            )
            stated = await self._call("Attacking a copy for the statement …", *words_of_report)
            self._build_result(facts, [table, quality, privacy][: 3 if stated else 2], words)

    def _build_result(self, facts: dict[str, Any], files: list[str], words: list[str]) -> None:
        ui, spent = self.ui, facts["privacy"]
        with self._card(4, "Look, and download"):
            ui.label(
                f"{facts['rows']:,} synthetic rows; ε = {spent['epsilon']:.4g} at δ = "
                f"{spent['delta']:g} was spent, in {facts['seconds']:.0f} seconds. All files are "
                f"in {self.place}."
            )
            if hidden := facts["reliability"]["unreliable"]:
                what = f"The noise hides {len(hidden)} results: {', '.join(hidden)}."
                ui.label(what).classes("bg-orange-2 w-full q-pa-sm rounded-borders")
            with ui.row():
                for label, path in zip(("table", "report", "statement"), files, strict=False):
                    ui.button(f"Download {label}", on_click=partial(ui.download.file, path))
            for label, path in zip(("Pictures", "Statement"), files[1:], strict=False):
                ui.label(label).classes("text-subtitle1 text-weight-bold")
                address = self.prefix + self.app.add_static_file(local_file=path)
                ui.element("iframe").props(f'src="{address}" sandbox="" title="{label}"')
            with ui.expansion("The same in a terminal").classes("w-full"):
                ui.label(f"skdpot {shlex.join(words)}").classes("told")
