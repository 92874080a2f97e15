"""Rules of a schema applied to rows: to the columns that are modelled, and back."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from graphlib import CycleError, TopologicalSorter
from typing import Any

import numpy as np
import pandas as pd

from skdpot._utils.arrays import BoolArray
from skdpot.tables.conditions import Condition, parse_conditions
from skdpot.tables.frames import Table
from skdpot.tables.grids import ColumnGrid
from skdpot.tables.pattern import Pattern
from skdpot.tables.rules import Forbidden, Implies, LessEqual, Rule, SumTo, Values

# All kinds of rules; those that imply more about columns come first.
RULES: tuple[type[Rule], ...] = (Implies, LessEqual, SumTo, Forbidden, Pattern)

_LEARNED_FROM = 100_000  # synthetic rows from which tables of implications are learned
_WHOLE = 1.0 - 1e-9  # share of a bin that counts as all of it
_ROUNDS = 20  # of redrawing rows that break rules,
_FEWEST, _MOST = 1000, 100_000  # with this many rows each
_HOPELESS = 100_000  # redrawn rows without one that obeys the rules


def constants_of(schema: Any) -> tuple[str, ...]:
    """Return the columns with one possible value, by public facts."""
    known = (column for column in schema if column.is_resolved and not column.missing)
    return tuple(
        column.name
        for column in known
        if (column.lower == column.upper if column.on_scale else column.n_categories == 1)
    )


class RowMap:
    """The rules of a schema, as maps between rows of the table and rows of the model."""

    def __init__(self, schema: Any, constants: Sequence[str] | None = None) -> None:
        self.schema = schema
        self.patterns = [rule for rule in schema.rules if isinstance(rule, Pattern)]
        self._rules: list[Any] = [rule for rule in schema.rules if not isinstance(rule, Pattern)]
        self.columns: dict[str, Any] = {column.name: column for column in schema}
        self._makers: dict[str, Any] = self._in_order()
        # Tables of implications give categories; upper bounds of larger columns hold for smaller.
        rules = [*reversed(self._makers.values()), *(rule for rule in self._rules if not rule.made)]
        for rule in sorted(rules, key=lambda rule: RULES.index(type(rule))):
            self.columns |= rule.check(self.columns)
        self._needed = {name for rule in self._makers.values() for name in rule.needs}
        self._stand_ins = {n: rule.stand_in(self.columns) for n, rule in self._makers.items()}
        known = constants_of(schema) if constants is None else constants
        self.constants = tuple(name for name in known if name not in self._makers)
        kept = {n: self._stand_ins.get(n, c) for n, c in self.columns.items()}
        model = tuple(c for n, c in kept.items() if c is not None and n not in self.constants)
        if not model:  # a fit counts at least one column
            self.constants, model = self.constants[1:], (self.columns[self.constants[0]],)
        self.model = replace(schema, columns=model, rules=())

    def _in_order(self) -> dict[str, Any]:
        """Return the rules by the columns that they determine, in the order of evaluation."""
        makers: dict[str, Any] = {}
        for rule in self._rules:
            for name in rule.names:
                if name not in self.columns:
                    raise rule.error(f"names {name!r}, which the schema does not describe")
            if rule.made in makers:
                raise rule.error(f"and {makers[rule.made]} both determine {rule.made!r}")
            if rule.made:
                makers[rule.made] = rule
        try:
            order = TopologicalSorter({name: rule.needs for name, rule in makers.items()})
            return {name: makers[name] for name in order.static_order() if name in makers}
        except CycleError as error:
            rules = " and ".join({str(makers[name]): None for name in error.args[1]})
            raise ValueError(f"The rules {rules} determine columns in a circle.") from None

    @property
    def described(self) -> dict[str, Any]:
        """Columns and patterns by name, which state the data types of a synthetic table."""
        return self.columns | {rule.column: rule for rule in self.patterns}

    def place(self, target: str | None) -> int | None:
        """Return the place of a column, or of its stand-in, in the model."""
        if target is None:
            return None
        if target in self.constants:
            raise ValueError(f"target={target!r} has one possible value; choose another target.")
        if (column := self._stand_ins.get(target, self.columns[target])) is None:
            raise self._makers[target].error(f"determines target={target!r}; choose another target")
        return int(self.model.names.index(column.name))

    def read(self, table: Any) -> dict[str, Any]:
        """Return the values of the model's columns in private rows of a table."""
        return self.to_model(self.schema.read(table))

    def to_model(self, values: Values) -> dict[str, Any]:
        """Return the values of the model's columns, row by row."""
        known, model = dict(values), {}
        for name, rule in self._makers.items():
            if (stand_in := self._stand_ins[name]) is not None:
                known[name] = model[stand_in.name] = rule.encode(self.columns, known)
            if name in self._needed:
                known[name] = rule.decode(self.columns, known)
        return {c.name: c.read(model.get(c.name, values.get(c.name))) for c in self.model}

    def from_model(self, values: Values) -> dict[str, Any]:
        """Return the values of the table's columns."""
        known, n_rows = dict(values), len(next(iter(values.values())))
        known |= {name: self.columns[name].from_unit(np.zeros(n_rows)) for name in self.constants}
        for name, rule in self._makers.items():
            if (stand_in := self._stand_ins[name]) is not None:
                known[name] = values[stand_in.name]
            known[name] = rule.decode(self.columns, known)
        return {name: known[name] for name in self.columns}

    def resolved(self, model: Any) -> "RowMap":
        """Return the map with the bounds and categories that a fit released."""
        known = {column.name: column for column in model}
        columns = {name: known.get(name, column) for name, column in self.columns.items()}
        made: dict[int, Rule] = {}
        for name, rule in self._makers.items():
            stand_in = self._stand_ins[name]
            fitted = None if stand_in is None else known[stand_in.name]
            made[id(rule)], columns[name] = rule.resolved(columns, fitted)
        rules = [made.get(id(rule), rule) for rule in self.schema.rules]
        rules = [r.possible(columns) if isinstance(r, Forbidden) else r for r in rules]
        rules = list(filter(None, rules))
        schema = replace(self.schema, columns=tuple(columns.values()), rules=tuple(rules))
        return RowMap(schema, self.constants)

    def learned(self, draw: Callable[[int], Values]) -> "RowMap":
        """Return the map with tables of implications, learned from synthetic rows."""
        rules = self.schema.rules
        if not any(isinstance(rule, Implies) and rule.table is None for rule in rules):
            return self
        rows = self.from_model(draw(_LEARNED_FROM))
        learned = (r.learn(self.columns, rows) if isinstance(r, Implies) else r for r in rules)
        return RowMap(replace(self.schema, rules=tuple(learned)), self.constants)

    def split(self, conditions: Any) -> tuple[Any, dict[str, Condition]]:
        """Return conditions on columns of the model, and conditions that drawn rows must pass."""
        if not isinstance(conditions, Mapping):
            return conditions, {}
        wanted, tested = dict(conditions), {}
        for name in wanted.keys() & set(self.constants):  # satisfied by all rows, or refused
            parse_conditions({name: wanted.pop(name)}, (self.columns[name].grid(),))
        for name, rule in reversed(self._makers.items()):
            if name in wanted:
                grids = (self.columns[name].grid(),)
                tested[name] = parse_conditions({name: wanted.pop(name)}, grids)[0]
                wanted = rule.narrowed(self.columns, tested[name]) | wanted
        for rule in self.patterns:
            if rule.column in wanted:
                raise rule.error("draws codes at random; conditions cannot choose them")
        return wanted, tested

    def impossible(
        self, grids: Sequence[ColumnGrid], bins: Sequence[Any], wanted: Mapping[int, Condition]
    ) -> list[dict[int, BoolArray]]:
        """Return the forbidden bins of each forbidden combination of columns of the model."""
        combinations = []
        for rule in self._rules:
            elsewhere = {*self._makers, *self.constants}
            if not isinstance(rule, Forbidden) or elsewhere & set(rule.names):
                continue
            forbidden = rule.conditions(grids)
            if all(
                place in wanted and not wanted[place].kept[condition.kept < 1.0].any()
                for place, condition in forbidden.items()
            ):
                raise rule.error("contradicts conditions: every row that satisfies them breaks it")
            marks = {p: bins[p].satisfied(c.kept) > _WHOLE for p, c in forbidden.items()}
            combinations.append(marks)
        return combinations

    def faults(self, values: Values) -> dict[str, BoolArray]:
        """Return which rows break each rule, or the bounds of the column that it determines."""
        faults = {}
        for rule in self._rules:
            faults[str(rule)] = rule.broken(self.columns, values)
            if rule.made and self.columns[rule.made].on_scale:
                column = self.columns[rule.made]
                numbers, (lower, upper) = column.numbers(values[rule.made]), column.held_span
                faults[str(rule)] |= (numbers < lower) | (numbers > upper)
        return faults

    def broken(self, table: Table) -> pd.DataFrame:
        """Return the number of rows of a synthetic table that break each rule."""
        faults = self.faults({name: table.read(column) for name, column in self.columns.items()})
        counts = [int(wrong.sum()) for wrong in faults.values()]
        return pd.DataFrame({"broken": counts}, pd.Index(faults, name="rule", dtype=object))

    def sample(
        self,
        n_rows: int,
        draw: Callable[[int], Values],
        tested: Mapping[str, Condition],
        rng: np.random.Generator,
    ) -> dict[str, Any]:
        """Draw rows until enough of them obey all rules and conditions."""
        if not self._rules:
            return self.from_model(draw(n_rows))
        kept: list[pd.DataFrame] = []
        why: set[str] = set()
        n_drawn, size = 0, n_rows
        for _ in range(_ROUNDS):
            values = self.from_model(draw(size))
            faults = self.faults(values)
            for name, condition in tested.items():
                held = condition.satisfied(self.columns[name].grid(), values[name])
                faults[f"the condition on {name!r} with {self._makers[name]}"] = ~held
            of_all = {label for label, wrong in faults.items() if wrong.all()}
            why |= of_all or {label for label, wrong in faults.items() if wrong.any()}
            good = ~np.logical_or.reduce(list(faults.values()))
            kept += [pd.DataFrame(values)[good]] * bool(good.any())
            n_kept, n_drawn = sum(map(len, kept)), n_drawn + size
            if n_kept >= n_rows or (not kept and n_drawn >= _HOPELESS):
                break
            due = 1.1 * (n_rows - n_kept) * n_drawn / max(n_kept, 1)
            size = int(np.clip(due, _FEWEST, max(_MOST, n_rows)))
        if not kept:
            raise ValueError(
                f"None of {n_drawn:,} rows of the model obeys {' and '.join(sorted(why))}. "
                "Conditions and rules contradict each other, or ask for what hardly ever occurs."
            )
        rows = pd.concat(kept, ignore_index=True)
        places = np.arange(n_rows) if n_kept >= n_rows else rng.integers(n_kept, size=n_rows)
        rows = rows.iloc[places].reset_index(drop=True)
        return {name: rows[name] for name in self.columns}
