"""Schemas: what is public about the columns of a table."""

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, MISSING, dataclass, fields, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import pandas as pd

from skdpot._utils.files import write_file
from skdpot._utils.pages import html_card
from skdpot.exceptions import warn_of_privacy
from skdpot.tables.column_base import TableColumn
from skdpot.tables.column_values import PlainColumn
from skdpot.tables.frames import Table
from skdpot.tables.identifiers import tells_who
from skdpot.tables.metadata import columns_of, sdv_metadata
from skdpot.tables.pattern import Pattern
from skdpot.tables.proposals import KINDS, Proposal, column_from_dtype, propose
from skdpot.tables.row_map import RULES, RowMap
from skdpot.tables.rules import Rule

_FORMAT = "skdpot.TableSchema"
_VERSION = 1

# Assumption in the privacy statement of a fit with an unconfirmed guess.
GUESSED = "the schema, which was guessed from values"


@dataclass(frozen=True, repr=False)
class TableSchema:
    """What is public about a table: its columns, their kinds, bounds and categories.

    Parameters
    ----------
    columns : iterable of columns
        Descriptions of the columns: `NumericColumn`, `DatetimeColumn`, `TimedeltaColumn`,
        `CategoricalColumn` or `BooleanColumn`.
    excluded : iterable of str, default=()
        Names of columns that a table may have and that are ignored: identifiers, free text.
    guessed : bool, default=False
        Whether the schema was guessed from values that may be private, see `guess`.
    notes : iterable of str, default=()
        Remarks for the person who confirms a guess.
    rules : iterable of rules, default=()
        What holds in every row: `Implies`, `LessEqual`, `Forbidden`, `SumTo` and `Pattern`.
        `DPTableSynthesizer` draws rows that obey them; other estimators do not use them.

    Raises
    ------
    ValueError
        If there is no column, two columns have the same name, or a rule contradicts the columns
        or another rule.

    Privacy
    -------
    Everything in a schema is treated as public and costs no privacy. Bounds and categories that
    are None are estimated privately when an estimator is fitted. Do not copy them from the private
    table, as `guess` does, unless everyone may know them.

    Examples
    --------
    >>> from skdpot.preprocessing import CategoricalColumn, NumericColumn, TableSchema
    >>> schema = TableSchema([
    ...     NumericColumn("age", lower=0, upper=100, integer=True),
    ...     CategoricalColumn("sex", categories=["Female", "Male"]),
    ... ])
    >>> schema["age"].n_values
    101
    >>> TableSchema.from_json(schema.to_json()) == schema
    True
    """

    columns: tuple[TableColumn, ...]
    _: KW_ONLY
    excluded: tuple[str, ...] = ()
    guessed: bool = False
    notes: tuple[str, ...] = ()
    rules: tuple[Rule, ...] = ()

    def __post_init__(self) -> None:
        """Check the fields and give them their plain Python types."""
        for field in ("columns", "excluded", "notes", "rules"):
            value = getattr(self, field)
            if isinstance(value, str) or not isinstance(value, Iterable):
                raise ValueError(f"{field} must be a list.")
            object.__setattr__(self, field, tuple(value))
        if not self.columns or not all(isinstance(c, TableColumn) for c in self.columns):
            kinds = ", ".join(kind.__name__ for kind in KINDS)
            raise ValueError(f"columns must hold one or more of {kinds}.")
        if not all(isinstance(text, str) for text in (*self.excluded, *self.notes)):
            raise ValueError("excluded and notes must hold strings.")
        if not all(isinstance(rule, RULES) for rule in self.rules):
            kinds = ", ".join(rule.__name__ for rule in RULES)
            raise ValueError(f"rules must hold instances of {kinds}.")
        made = [rule.column for rule in self.rules if isinstance(rule, Pattern)]
        excluded = tuple(dict.fromkeys([*self.excluded, *made])) if made else self.excluded
        count = Counter([*self.names, *self.excluded]) | Counter([*self.names, *made])
        twice, times = count.most_common(1)[0]
        if times > 1:
            raise ValueError(f"Column {twice!r} is in the schema twice.")
        if not isinstance(self.guessed, bool):
            raise ValueError("guessed must be True or False.")
        object.__setattr__(self, "excluded", excluded)
        if self.rules:
            # Refuses rules that contradict each other or the columns; others may imply bounds.
            object.__setattr__(self, "columns", tuple(RowMap(self).columns.values()))

    @cached_property
    def names(self) -> tuple[str, ...]:
        """Names of the columns that are encoded."""
        return tuple(column.name for column in self.columns)

    @cached_property
    def _by_name(self) -> dict[str, TableColumn]:
        return dict(zip(self.names, self.columns, strict=True))

    @property
    def is_resolved(self) -> bool:
        """Whether no bound and no list of categories is left to be estimated privately."""
        return all(column.is_resolved for column in self.columns)

    def __getitem__(self, name: str) -> TableColumn:
        """Return the column of that name."""
        if name in self._by_name:
            return self._by_name[name]
        raise KeyError(f"The schema has no column {name!r}; it has {', '.join(self.names)}.")

    def __iter__(self) -> Iterator[TableColumn]:
        """Go through the columns."""
        return iter(self.columns)

    def __len__(self) -> int:
        """Return the number of columns."""
        return len(self.columns)

    def replace(self, *columns: TableColumn) -> "TableSchema":
        """Return the schema with some columns replaced by columns of the same name.

        Parameters
        ----------
        *columns : columns
            New columns. A column with the name of an excluded one is appended.

        Returns
        -------
        TableSchema
        """
        new = {column.name: column for column in columns}
        for name in new.keys() - set(self.excluded):
            self[name]
        kept = tuple(new.pop(column.name, column) for column in self.columns)
        excluded = tuple(name for name in self.excluded if name not in new)
        return replace(self, columns=(*kept, *new.values()), excluded=excluded)

    def exclude(self, *names: str) -> "TableSchema":
        """Return the schema with some columns excluded.

        Parameters
        ----------
        *names : str
            Names of columns of the schema.

        Returns
        -------
        TableSchema
        """
        left = dict(self._by_name)
        for name in names:
            left.pop(self[name].name)
        return replace(self, columns=tuple(left.values()), excluded=(*self.excluded, *names))

    def confirm(self) -> "TableSchema":
        """Declare a guessed schema public.

        Returns
        -------
        TableSchema
            The schema with ``guessed=False`` and without the notes, which count private values.
        """
        return replace(self, guessed=False, notes=())

    @classmethod
    def from_dtypes(cls, X: Any) -> "TableSchema":
        """Make a schema of public facts only: the names and the data types of the columns.

        Parameters
        ----------
        X : DataFrame of pandas or polars, or ndarray of shape (n_rows, n_columns)
            No value is read.

        Returns
        -------
        TableSchema
            Bounds and categories are None, except for booleans. `missing` is True wherever the
            data type allows missing values. Columns named like identifiers, such as "name",
            "patient_id" or "email", are excluded; `replace` includes them again.

        Raises
        ------
        ValueError
            If a column has an unsupported data type, or no column is left.

        Privacy
        -------
        The categories that a data type lists are not read: ``astype("category")`` makes that list
        from the values, including a category that only one person has. Declare public categories
        in a `CategoricalColumn`, with ``ordered=True`` if their order matters.
        """
        table = Table.of(X)
        excluded = tuple(filter(tells_who, table.names))
        kept = [name for name in table.names if not tells_who(name)]
        if not kept:
            raise ValueError(
                f"All columns are named like identifiers of people: {table.names}. Pass a schema "
                "that states what they hold if they are not, or add other columns."
            )
        columns = tuple(column_from_dtype(table, name) for name in kept)
        return cls(columns, excluded=excluded)

    @classmethod
    def guess(
        cls,
        X: Any,
        *,
        exclude: Iterable[str] = (),
        include: Iterable[str] = (),
        read: Mapping[str, str | Sequence[str]] | None = None,
    ) -> "TableSchema":
        """Propose a schema from the VALUES of a table; what you confirm becomes public.

        Parameters
        ----------
        X : DataFrame of pandas or polars
            The table. Its values are read without any privacy protection.
        exclude : iterable of str, default=()
            Columns to exclude.
        include : iterable of str, default=()
            Columns to keep although their names or values look like identifiers; the categories of
            text columns are then left to private selection.
        read : mapping of str to str, optional
            How to read columns of text whose values are ambiguous: "categories", "truth values",
            "durations", numbers like "1234", "1,234.50" or "1.234,50 EUR" (see `NumericColumn`), or
            a format of dates, such as "%d/%m/%Y", or a list of several (see `DatetimeColumn`).

        Returns
        -------
        TableSchema
            Schema with ``guessed=True`` until `confirm` is called, and `notes` on what to check.

        Raises
        ------
        ValueError
            If no column is left.

        Privacy
        -------
        A guess protects no one. It contains the smallest and largest value of each number and
        date, rounded outwards, all categories, and whether values are missing; hence a category
        that only one person has, or the age of the oldest person. Before you call `confirm`,
        replace what must not be public by public knowledge, or by None to estimate it privately.

        Notes
        -----
        Integers are numeric, however few values they have. Non-negative amounts whose maximum is
        far above the 99 % quantile get a logarithmic scale. Text with few distinct values is
        categorical; with many, its categories are left to private selection. Texts that are all
        dates, durations, numbers with separators, units or currencies, or truth values in several
        spellings are read as such; digits with a leading zero are codes. Excluded with a note are
        columns named like identifiers ("name", "patient_id", "email"), text of which more than half
        of the values are distinct, text that resembles dates or numbers but can be read in no way,
        or in two, and unsupported values.
        """
        return cls.of_proposals(propose(X, exclude, include, read or {}))

    @classmethod
    def of_proposals(cls, proposals: Iterable[Proposal]) -> "TableSchema":
        """Return the guess that proposals make."""
        proposals = list(proposals)
        notes = tuple(f"{p.name!r}: {p.note}" for p in proposals if p.note)
        columns = tuple(p.column for p in proposals if p.column is not None)
        if not columns:
            raise ValueError("No column is left: " + " ".join(notes))
        excluded = tuple(p.name for p in proposals if p.column is None)
        return cls(columns, excluded=excluded, guessed=True, notes=notes)

    def bind(self, X: Any) -> "TableSchema":
        """Return the schema with the column order and the data types of a table.

        Parameters
        ----------
        X : DataFrame of pandas or polars, or ndarray of shape (n_rows, n_columns)
            No value is read. The columns of an array are taken in the order of the schema.

        Returns
        -------
        TableSchema
            Columns without a data type get that of the table.

        Raises
        ------
        ValueError
            If the table and the schema have different columns, or data types are incompatible.
        """
        table = Table.of(X, self.names)
        if table.kind == "array" and len(table.names) != table.data.shape[1]:
            raise ValueError(
                f"The array has {table.data.shape[1]} columns, but the schema describes "
                f"{len(self.columns)}."
            )
        there = set(table.names)
        lacking = [repr(name) for name in self.names if name not in there]
        if lacking:
            raise ValueError(
                f"The schema describes {', '.join(lacking)}, which the table does not contain."
            )
        known = {*self.names, *self.excluded}
        if unknown := [repr(name) for name in table.names if name not in known]:
            raise ValueError(
                f"The table has columns that the schema does not describe: {', '.join(unknown)}. "
                "Drop them, add them to the schema, or list them as excluded."
            )
        kept = [name for name in table.names if name in self._by_name]
        columns = tuple(self[name].bind(table.dtype(name)) for name in kept)
        return replace(self, columns=columns)

    def read(self, table: Any) -> dict[str, PlainColumn]:
        """Read all columns of a private table; refuse it if one cannot be read."""
        table = Table.of(table)
        there = set(table.names)
        lacking = [name for name in self.names if name not in there]
        if lacking:  # a batch; `bind` has checked a whole table
            raise ValueError(f"A batch lacks the columns {', '.join(map(repr, lacking))}.")
        return {column.name: table.read(column) for column in self.columns}

    def to_json(self, path: str | Path | None = None) -> str:
        """Serialize the schema as JSON.

        Parameters
        ----------
        path : str or Path, optional
            File to write; an existing file is replaced.

        Returns
        -------
        str
            The JSON text.
        """
        content = {
            "format": _FORMAT,
            "version": _VERSION,
            "guessed": self.guessed,
            "excluded": self.excluded,
            "notes": self.notes,
            "columns": [column.to_dict() for column in self.columns],
        }
        if self.rules:
            content["rules"] = [rule.to_dict() for rule in self.rules]
        text = json.dumps(content, indent=2, ensure_ascii=False, allow_nan=False) + "\n"
        if path is not None:
            write_file(path, lambda draft: draft.write_text(text, encoding="utf-8"))
        return text

    @classmethod
    def from_json(cls, source: str | Path, *, table: str | None = None) -> "TableSchema":
        """Read a schema from JSON, or metadata of another format.

        Parameters
        ----------
        source : str or Path
            JSON text as returned by `to_json`, or the path of a JSON file. No code is executed.
            Also metadata of SDV or SDMetrics, a data package or a table schema of Frictionless, and
            Croissant. They count as public. What they do not state (all bounds and categories,
            except for enumerations and limits of Frictionless) is left to be estimated privately.
            Keys, identifiers and columns named like these are excluded.
        table : str, optional
            Name of the table, where metadata describe several.

        Returns
        -------
        TableSchema

        Raises
        ------
        ValueError
            If it is not a schema or has an unknown version.
        """
        is_text = isinstance(source, str) and source.lstrip().startswith("{")
        text = str(source) if is_text else Path(source).read_text(encoding="utf-8")
        try:
            content = json.loads(text, object_pairs_hook=_unique_entries)
        except (ValueError, RecursionError) as error:
            raise ValueError(f"This is not a schema: it is not valid JSON ({error}).") from None
        if not isinstance(content, dict) or content.pop("format", None) != _FORMAT:
            if described := columns_of(content, table):
                kept = tuple(column for column in described.values() if column is not None)
                return cls(kept, excluded=tuple(n for n, c in described.items() if c is None))
            raise ValueError(f'This is not a schema: it lacks "format": "{_FORMAT}".')
        version, reads = content.pop("version", None), f"this release reads version {_VERSION}"
        if type(version) is not int or version != _VERSION:
            raise ValueError(f"The schema has version {version!r:.40}; {reads}.")
        if unknown := set(content) - {item.name for item in fields(cls)}:
            raise ValueError(f"The schema has an unknown entry {min(unknown)!r:.40}.")
        columns, rules = content.pop("columns", None), content.pop("rules", [])
        if not isinstance(columns, list):
            raise ValueError("The schema has no list of columns.")
        if not isinstance(rules, list):
            raise ValueError("The rules of a schema must be a list.")
        columns = tuple(_rebuild(entries, KINDS, "column") for entries in columns)
        rules = tuple(_rebuild(entries, RULES, "rule") for entries in rules)
        return cls(columns, rules=rules, **content)

    def to_sdv(self) -> dict[str, Any]:
        """Return the columns as metadata of SDV and SDMetrics, to score synthetic rows with them.

        Returns
        -------
        dict
            For ``SingleTableMetadata.load_from_dict`` of SDV, and the reports of SDMetrics. Bounds,
            categories and rules have no place in it.

        Examples
        --------
        >>> from skdpot.preprocessing import NumericColumn, TableSchema
        >>> TableSchema([NumericColumn("age", integer=True)]).to_sdv()["columns"]
        {'age': {'sdtype': 'numerical', 'computer_representation': 'Int64'}}
        """
        return sdv_metadata(self.columns)

    def to_frame(self) -> pd.DataFrame:
        """Return a readable summary with one row per column.

        Returns
        -------
        DataFrame
            Kind, possible values, whether values may be missing, and data type of each column.
        """
        rows = [
            {
                "kind": column.kind,
                "values": column.describe(),
                "missing": "allowed" if column.missing else "no",
                "dtype": column.dtype or "as in the table",
            }
            for column in self.columns
        ]
        return pd.DataFrame(rows, index=pd.Index(self.names, name="column"))

    def __repr__(self) -> str:
        """Return the names, and whether the schema is a guess."""
        names = ", ".join(self.names[:6]) + (", ..." if len(self.names) > 6 else "")
        guessed = "; guessed from the values: what is confirmed becomes public"
        state = "" if self.is_resolved else "; something is left to be estimated privately"
        return f"TableSchema({len(self)} columns: {names}{guessed * self.guessed}{state})"

    def _repr_html_(self) -> str:
        """Return the columns as a card for notebooks."""
        shown = self.to_frame().itertuples(index=False)
        rows = [(name, *row[:3]) for name, row in zip(self.names, shown, strict=True)]
        options: dict[str, Any] = {"template": "schema.html", "schema": self, "rows": rows}
        return html_card("Table schema", f"{len(self)} columns", **options)


def bound_schema(
    stated: TableSchema | None, X: Any, caller: str, unit: str | None = None
) -> TableSchema:
    """Return a schema with the data types of a table, by default from its public facts alone."""
    schema = TableSchema.from_dtypes(X) if stated is None else stated
    left_out = [repr(name) for name in schema.excluded if name != unit]
    schema = without_unit(schema, unit)
    if stated is None and left_out:
        names = ", ".join(left_out)
        warn_of_privacy(
            f"{caller}: {names} left out, because columns with such names identify people. Drop "
            "them first, or declare them in a schema if they do not."
        )
    return schema.bind(X)


def without_unit(schema: TableSchema, unit: str | None) -> TableSchema:
    """Exclude the column that identifies the person, described or not."""
    if unit in schema.names:
        return schema.exclude(str(unit))
    if unit is None or unit in schema.excluded:
        return schema
    return replace(schema, excluded=(*schema.excluded, unit))


def _unique_entries(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    entries = dict(pairs)
    if len(entries) < len(pairs):
        raise ValueError("This is not a schema: an entry occurs twice.")
    return entries


def _rebuild(entries: Any, kinds: Iterable[Any], noun: str) -> Any:
    """Rebuild a column or a rule from what its `to_dict` returned."""
    if not isinstance(entries, Mapping):
        raise ValueError(f"Every {noun} of a schema must be an object with a kind.")
    known, stated = {kind.kind: kind for kind in kinds}, dict(entries)
    kind = stated.pop("kind", None)
    if not isinstance(kind, str) or kind not in known:
        there = ", ".join(known)
        raise ValueError(f"A {noun} has the unknown kind {kind!r:.40}; there are {there}.")
    due = [item for item in fields(known[kind]) if item.init]
    names = sorted(item.name for item in due)
    if unknown := sorted(stated.keys() - set(names)):
        there = ", ".join(names)
        raise ValueError(f"A {kind} {noun} has no field {unknown[0]!r:.40}; there are {there}.")
    for item in due:
        if item.default is MISSING and item.name not in stated:
            raise ValueError(f"A {kind} {noun} needs the field {item.name!r}.")
    return known[kind](**stated)


def warn_of_guess(schema: TableSchema, caller: str) -> None:
    """Warn if a schema was guessed from values and not confirmed."""
    if schema.guessed:
        warn_of_privacy(
            f"{caller}: the schema was guessed from the values of a table, which the privacy "
            "statement does not cover. Replace what is not public, then pass schema.confirm()."
        )
