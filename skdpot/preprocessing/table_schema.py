"""Schemas: what is public about the columns of a table."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from skdpot.preprocessing.schema_display import schema_card, schema_frame
from skdpot.preprocessing.schema_text import schema_fields, schema_text
from skdpot.preprocessing.table_columns import TableColumn, column_for_dtype
from skdpot.preprocessing.table_frames import Table
from skdpot.preprocessing.table_guess import guess_columns, tells_who

__all__ = ["TableSchema"]


@dataclass(frozen=True, repr=False)
class TableSchema:
    """What is public about a table: its columns, their kinds, bounds and categories.

    Parameters
    ----------
    columns : iterable of NumericColumn, DatetimeColumn, CategoricalColumn, BooleanColumn
        The columns that are encoded.
    excluded : iterable of str, default=()
        Names of columns that a table may have and that are left out: identifiers, free text.
    guessed : bool, default=False
        Whether the schema was guessed from values that may be private, see `guess`.
    notes : iterable of str, default=()
        What whoever confirms a guess should know.

    Raises
    ------
    ValueError
        If there is no column, or two have the same name.

    Privacy
    -------
    Everything in a schema is treated as public and costs no privacy. Bounds and categories that
    are None are estimated privately when a `TableEncoder` is fitted. Do not copy them from the
    private table, as `guess` does, unless everybody may know them.

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
    excluded: tuple[str, ...] = ()
    guessed: bool = False
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Check the fields and give them their plain Python types."""
        for field in ("columns", "excluded", "notes"):
            value = getattr(self, field)
            if isinstance(value, str) or not isinstance(value, Iterable):
                raise ValueError(f"{field} must be a list.")
            object.__setattr__(self, field, tuple(value))
        if not self.columns or not all(isinstance(c, TableColumn) for c in self.columns):
            raise ValueError(
                "columns must hold one or more of NumericColumn, DatetimeColumn, CategoricalColumn "
                "and BooleanColumn."
            )
        if not all(isinstance(text, str) for text in (*self.excluded, *self.notes)):
            raise ValueError("excluded and notes must hold strings.")
        names = [*self.names, *self.excluded]
        twice = next((name for name in names if names.count(name) > 1), None)
        if twice is not None:
            raise ValueError(f"Column {twice!r} is in the schema twice.")
        if not isinstance(self.guessed, bool):
            raise ValueError("guessed must be True or False.")

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the columns that are encoded."""
        return tuple(column.name for column in self.columns)

    @property
    def is_resolved(self) -> bool:
        """Whether no bound and no list of categories is left to be estimated privately."""
        return all(column.is_resolved for column in self.columns)

    def __getitem__(self, name: str) -> TableColumn:
        """Return the column of that name."""
        for column in self.columns:
            if column.name == name:
                return column
        raise KeyError(f"The schema has no column {name!r}; it has {', '.join(self.names)}.")

    def __iter__(self) -> Iterator[TableColumn]:
        """Go through the columns."""
        return iter(self.columns)

    def __len__(self) -> int:
        """Return the number of columns."""
        return len(self.columns)

    def replace(self, *columns: TableColumn) -> "TableSchema":
        """Return the schema with some columns replaced by those of the same name.

        Parameters
        ----------
        *columns : NumericColumn, DatetimeColumn, CategoricalColumn or BooleanColumn
            New columns; of an excluded column too, which then comes last.

        Returns
        -------
        TableSchema
        """
        new = {column.name: column for column in columns}
        for name in new:
            if name not in (*self.names, *self.excluded):
                self[name]
        kept = tuple(new.pop(column.name, column) for column in self.columns)
        excluded = tuple(name for name in self.excluded if name not in new)
        return TableSchema((*kept, *new.values()), excluded, self.guessed, self.notes)

    def exclude(self, *names: str) -> "TableSchema":
        """Return the schema with some columns left out.

        Parameters
        ----------
        *names : str
            Names of columns of the schema.

        Returns
        -------
        TableSchema
        """
        for name in names:
            self[name]
        kept = tuple(column for column in self.columns if column.name not in names)
        return TableSchema(kept, (*self.excluded, *names), self.guessed, self.notes)

    def confirm(self) -> "TableSchema":
        """Return the schema as one that somebody has declared to be public.

        Returns
        -------
        TableSchema
            With ``guessed=False``, and without the notes, which count private values.
        """
        return TableSchema(self.columns, self.excluded)

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
            Bounds and categories are None; only truth values are known. `missing` is True
            wherever the data type allows for it. Columns whose names say that they tell who
            somebody is, such as "name", "patient_id" or "email", are excluded; `replace` takes
            them back.

        Raises
        ------
        ValueError
            If a column has a data type that is not supported; the message names it. If no
            column is left.

        Privacy
        -------
        A ``category`` of pandas and an ``Enum`` or ``Categorical`` of polars list categories, and
        ``astype("category")`` makes that list from the values: a category that one person alone
        has is on it. So the list is not read, nor its order. Declare categories that are public
        in a `CategoricalColumn`, with ``ordered=True`` if their order means something.
        """
        table = Table.of(X)
        excluded = tuple(filter(tells_who, table.names))
        kept = [name for name in table.names if name not in excluded]
        if not kept:
            raise ValueError(
                f"By their names all columns tell who somebody is: {table.names}. Pass a "
                "schema that states what they hold, if it is something else, or other columns."
            )
        return cls(tuple(_column_from_dtype(table, name) for name in kept), excluded)

    @classmethod
    def guess(
        cls, X: Any, *, exclude: Iterable[str] = (), include: Iterable[str] = ()
    ) -> "TableSchema":
        """Propose a schema from the VALUES of a table; whatever you confirm becomes public.

        Parameters
        ----------
        X : DataFrame of pandas or polars
            The table. Its values are read, without any privacy.
        exclude : iterable of str, default=()
            Columns to leave out.
        include : iterable of str, default=()
            Columns to keep although their names or their values look like identifiers; the
            categories of texts are then left to private selection.

        Returns
        -------
        TableSchema
            With ``guessed=True`` until `confirm` is called, and `notes` on what to look at.

        Raises
        ------
        ValueError
            If no column is left.

        Privacy
        -------
        None: the smallest and largest value of each number and date are read and rounded
        outwards, all categories and whether values are missing are copied. A category that one
        person alone has, or the age of the oldest, is then in the schema. Go through it, replace
        what is nobody's business by what everybody knows, or by None to have it estimated
        privately, and only then `confirm`.

        Notes
        -----
        Integers keep their number line however few they are. Amounts from zero up of which the
        largest is far above the 99 % quantile get a logarithmic scale. Text with few distinct
        values is categorical; with many, its categories are left to private selection. Excluded,
        with a note that says so, are columns with a name that tells who somebody is ("name",
        "patient_id", "email"), texts of which more than half are distinct, texts that look like
        dates or numbers and are not written as such, and what cannot be read.
        """
        table = Table.of(X)
        given = {"exclude": tuple(exclude), "include": tuple(include)}
        for argument, names in given.items():
            for name in names:
                if name not in table.names:
                    raise ValueError(
                        f"{argument} names {name!r}, but the table has no such column."
                    )
        columns, excluded, notes = guess_columns(table, **given, public=_column_with_categories)
        if not columns:
            raise ValueError("No column is left to describe: " + " ".join(notes))
        return cls(columns, excluded, True, notes)

    def bind(self, X: Any) -> "TableSchema":
        """Return the schema in the order of the columns of a table, with its data types.

        Parameters
        ----------
        X : DataFrame of pandas or polars, or ndarray of shape (n_rows, n_columns)
            No value is read. The columns of an array are those of the schema, in their order.

        Returns
        -------
        TableSchema
            Columns that had no data type have that of the table.

        Raises
        ------
        ValueError
            If the table and the schema have different columns, or a data type does not fit.
        """
        table = Table.of(X, self.names)
        if table.kind == "array" and len(table.names) != table.data.shape[1]:
            raise ValueError(
                f"The array has {table.data.shape[1]} columns, the schema {len(self.columns)}."
            )
        self._check_names(table)
        kept = [name for name in table.names if name in self.names]
        columns = tuple(self[name].bind(table.dtype(name)) for name in kept)
        return TableSchema(columns, self.excluded, self.guessed, self.notes)

    def _check_names(self, table: Table) -> None:
        lacking = [repr(name) for name in self.names if name not in table.names]
        known = {*self.names, *self.excluded}
        unknown = [repr(name) for name in table.names if name not in known]
        if lacking:
            raise ValueError(
                f"The schema describes {', '.join(lacking)}, and the table has no such column."
            )
        if unknown:
            raise ValueError(
                f"The table has columns that the schema does not describe: {', '.join(unknown)}. "
                "Drop them, add them to the schema, or list them as excluded."
            )

    def to_json(self, path: str | Path | None = None) -> str:
        """Write the schema as JSON.

        Parameters
        ----------
        path : str or Path, optional
            File to write; an existing one is replaced.

        Returns
        -------
        str
            The text, whether it was written or not.
        """
        text = schema_text(self)
        if path is not None:
            Path(path).write_text(text, encoding="utf-8")
        return text

    @classmethod
    def from_json(cls, source: str | Path) -> "TableSchema":
        """Read a schema.

        Parameters
        ----------
        source : str or Path
            What `to_json` wrote, or the path of a file that holds it; nothing in it is executed.

        Returns
        -------
        TableSchema

        Raises
        ------
        ValueError
            If it is not a schema, or of an unknown version.
        """
        is_text = isinstance(source, str) and source.lstrip().startswith("{")
        text = str(source) if is_text else Path(source).read_text(encoding="utf-8")
        return cls(**schema_fields(text))

    def to_frame(self) -> pd.DataFrame:
        """Return one row a column, to be read.

        Returns
        -------
        DataFrame
            Indexed by name, with the kind, the values, whether some may be missing, and the data
            type.
        """
        return schema_frame(self.columns)

    def __repr__(self) -> str:
        """Return the names, and whether values were read for it."""
        names = ", ".join(self.names[:6]) + (", ..." if len(self.names) > 6 else "")
        guessed = "; guessed from the values: what is confirmed becomes public"
        state = "" if self.is_resolved else "; something is left to be estimated privately"
        return f"TableSchema({len(self)} columns: {names}{guessed * self.guessed}{state})"

    def _repr_html_(self) -> str:
        """Return the columns as a card for notebooks."""
        return schema_card(self)


def _column_from_dtype(table: Table, name: str) -> TableColumn:
    return column_for_dtype(name, table.dtype(name), table.can_miss(name))


def _column_with_categories(table: Table, name: str) -> TableColumn:
    column = _column_from_dtype(table, name)
    listed = table.categories(name)
    if listed is None or not listed[0]:
        return column
    return column.replace(categories=listed[0], ordered=listed[1])
