"""
Tables drawn from a known law, so that a synthetic table can be held against fresh rows.

All constants are here and nothing of the synthesizer was chosen by these tables. The laws are
invented; ``credit`` has the shapes of a table of credit cards (limits in multiples of 10,000,
bills in hundreds, balances below zero, payments that are often zero) and none of its rows. Public
bounds are as wide as somebody would state without a look at the rows.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
from table_task import TableTask

from skdpot.preprocessing import (
    CategoricalColumn,
    Implies,
    LessEqual,
    NumericColumn,
    TableSchema,
)

__all__ = ["LAWS", "Law", "binary", "census", "credit", "long", "rules", "tails", "wide", "xor"]

N_TEST = 20_000
IntArray = np.ndarray
Draw = Callable[[int, np.random.Generator], dict[str, Any]]


@dataclass(frozen=True, eq=False)
class Law:
    """
    A distribution of rows, and what is public about it.

    Attributes
    ----------
    n_rows : int
        Number of private rows.
    target : str
        What a model is to predict.
    columns : tuple
        Columns of the public schema.
    draw : callable
        Draws rows: ``draw(n_rows, rng)``.
    relations : tuple of tuples of str
        Columns that the law ties together.
    rules : tuple of rules
        What holds in every row of the law, as a schema may state it.
    """

    n_rows: int
    target: str
    columns: tuple[NumericColumn | CategoricalColumn, ...]
    draw: Draw
    relations: tuple[tuple[str, ...], ...] = ()
    rules: tuple[Implies | LessEqual, ...] = ()

    def rows(self, n_rows: int, seed: int, purpose: int) -> pd.DataFrame:
        """Draw a table; each purpose of a seed has rows of its own."""
        drawn = self.draw(n_rows, np.random.default_rng([19, seed, purpose]))
        return pd.DataFrame({column.name: drawn[column.name] for column in self.columns})

    def stated(self, task: TableTask) -> TableTask:
        """Return a task whose public schema states the rules."""
        return replace(task, schema=TableSchema(self.columns, rules=self.rules))

    def task(self, seed: int, share: float = 1.0) -> TableTask:
        """Return private rows, or a share of them, and rows for a test."""
        train = self.rows(max(int(self.n_rows * share), 1000), seed, 0)
        return TableTask(
            train, self.rows(N_TEST, seed, 1), self.target, TableSchema(list(self.columns))
        )

    def broken(self, table: pd.DataFrame) -> float:
        """Return the share of rows that break a rule."""
        broken = np.zeros(len(table), dtype=bool)
        for rule in self.rules:
            if isinstance(rule, LessEqual):
                broken |= (table[rule.smaller] > table[rule.larger]).to_numpy()
            else:
                told = table[rule.columns[0]].map(dict(rule.table))
                broken |= (table[rule.target] != told).to_numpy()
        return float(broken.mean())


# --- parts of laws ----------------------------------------------------------------------------


def whole(name: str, lower: int, upper: int) -> NumericColumn:
    """Return a column of integers."""
    return NumericColumn(name, lower=lower, upper=upper, integer=True)


def coded(name: str, n_categories: int) -> CategoricalColumn:
    """Return a column of the categories 0, 1, ..."""
    return CategoricalColumn(name, categories=range(n_categories))


def chosen(weights: np.ndarray, rng: np.random.Generator) -> IntArray:
    """Draw a category for each row of weights."""
    edges = np.cumsum(weights, axis=1)
    return (rng.random((len(weights), 1)) * edges[:, -1:] > edges).sum(axis=1)


def yes(logits: np.ndarray, rng: np.random.Generator) -> IntArray:
    """Draw 1 with the probability whose logit is given, and else 0."""
    return (rng.random(len(logits)) < 1.0 / (1.0 + np.exp(-logits))).astype(np.int64)


def levels(values: np.ndarray, *edges: float) -> IntArray:
    """Return how many of the edges each value reaches."""
    return np.searchsorted(edges, values, side="right")


def whole_to(values: np.ndarray, step: float | np.ndarray) -> IntArray:
    """Round to multiples of a step."""
    return (np.rint(values / step) * step).astype(np.int64)


def as_people_say(amounts: np.ndarray, rng: np.random.Generator) -> IntArray:
    """Round 60 % of positive amounts to half their power of ten, the others to a tenth of it."""
    power = 10.0 ** np.floor(np.log10(np.maximum(amounts, 1.0)))
    step = np.maximum(power * np.where(rng.random(len(amounts)) < 0.6, 0.5, 0.1), 1.0)
    return whole_to(amounts, step)


# --- laws -------------------------------------------------------------------------------------


def tails() -> Law:
    """Return amounts with heavy tails on both sides, in bounds of a billion."""
    billion = 10**9

    def draw(n: int, rng: np.random.Generator) -> dict[str, Any]:
        rich, ill, own = rng.standard_normal((3, n))
        noise = rng.standard_normal((10, n))
        sector = levels(0.6 * rich + 0.8 * noise[0], -1.0, -0.2, 0.4, 1.2)
        income = np.exp(10.0 + 0.9 * rich + 0.3 * sector + 0.4 * noise[1])
        wealth = np.sinh(2.5 * (0.7 * rich + 0.7 * noise[2])) * 8_000
        gift = np.where(rng.random(n) < 0.75, 0, np.exp(5.0 + 0.6 * rich + 1.6 * noise[3]))
        claim = np.where(
            rng.random(n) < 0.85 - 0.1 * (ill > 1), 0, np.exp(6.5 + 0.5 * ill + 2.0 * noise[4])
        )
        visits = rng.poisson(np.exp(0.3 + 0.9 * ill) * rng.gamma(0.8, 1.25, n))
        trade = 20.0 * noise[5] / np.sqrt(rng.chisquare(2.5, n) / 2.5) * np.exp(0.4 * rich)
        wait = rng.exponential(90.0, n) * np.exp(0.8 * ill)
        return {
            "sector": sector,
            "region": levels(own + 0.4 * rich, -1.2, -0.6, 0.0, 0.5, 1.0, 1.6),
            "income": as_people_say(income.clip(1, billion), rng),
            "wealth": whole_to(wealth.clip(-billion, billion), 100),
            "gift": as_people_say(gift.clip(0, billion), rng),
            "claim": whole_to(claim.clip(0, billion), 1),
            "visits": visits.clip(0, 10_000),
            "trade": trade.clip(-1e6, 1e6),
            "wait": wait.clip(0.0, 1e6),
            "distance": (2.0 * rng.pareto(1.3, n) * np.exp(0.3 * noise[6])).clip(0.0, 1e6),
            "age": np.rint(45 + 14 * noise[7] + 4 * rich).clip(18, 100).astype(np.int64),
            "ill": yes(-1.5 + 1.1 * ill + 0.5 * (claim > 1_000) + 0.02 * (noise[7] * 14), rng),
        }

    columns = (
        coded("sector", 5),
        coded("region", 7),
        whole("income", 0, billion),
        whole("wealth", -billion, billion),
        whole("gift", 0, billion),
        whole("claim", 0, billion),
        whole("visits", 0, 10_000),
        NumericColumn("trade", lower=-1e6, upper=1e6),
        NumericColumn("wait", lower=0.0, upper=1e6),
        NumericColumn("distance", lower=0.0, upper=1e6),
        whole("age", 18, 100),
        coded("ill", 2),
    )
    return Law(
        50_000,
        "ill",
        columns,
        draw,
        (("income", "sector"), ("income", "wealth"), ("visits", "wait"), ("visits", "ill")),
    )


def rules() -> Law:
    """Return a table where columns determine or bound others."""
    constants = np.random.default_rng(1902)
    n_codes, n_districts = 40, 30
    chapter_of = constants.integers(0, 7, n_codes)
    fee_of = constants.integers(2, 60, n_codes) * 50
    region_of = constants.integers(0, 6, n_districts)
    code_weights = 1.0 / (1.0 + np.arange(n_codes)) ** 0.8
    district_weights = constants.gamma(1.0, size=n_districts)
    length_of = constants.gamma(2.0, 2.0, 7)

    def draw(n: int, rng: np.random.Generator) -> dict[str, Any]:
        age = rng.integers(0, 100, n)
        shift = 1.0 + 2.0 * (np.arange(n_codes) % 3 == (age // 34)[:, None])
        code = chosen(code_weights * shift, rng)
        district = chosen(np.broadcast_to(district_weights, (n, n_districts)), rng)
        stay = rng.poisson(length_of[chapter_of[code]] * (0.5 + age / 80))
        admitted = rng.integers(0, 365, n) - 20 * (chapter_of[code] == 2)
        admitted = admitted.clip(0, 364)
        ordered = 1 + rng.poisson(2.0 + stay)
        return {
            "code": code,
            "chapter": chapter_of[code],
            "fee": fee_of[code],
            "district": district,
            "region": region_of[district],
            "age": age,
            "grown_up": (age >= 18).astype(np.int64),
            "admitted": admitted,
            "discharged": admitted + stay.clip(0, 200),
            "ordered": ordered.clip(0, 500),
            "delivered": rng.binomial(ordered.clip(0, 500), 0.85),
            "again": yes(-2.5 + 0.02 * age + 0.15 * stay + 0.8 * (chapter_of[code] < 2), rng),
        }

    columns = (
        coded("code", n_codes),
        coded("chapter", 7),
        whole("fee", 0, 5_000),
        coded("district", n_districts),
        coded("region", 6),
        whole("age", 0, 99),
        coded("grown_up", 2),
        whole("admitted", 0, 364),
        whole("discharged", 0, 600),
        whole("ordered", 0, 500),
        whole("delivered", 0, 500),
        coded("again", 2),
    )

    def table(values: np.ndarray) -> dict[int, int]:
        return dict(enumerate(values.tolist()))

    return Law(
        40_000,
        "again",
        columns,
        draw,
        (
            ("code", "chapter"),
            ("code", "fee"),
            ("district", "region"),
            ("age", "grown_up"),
            ("admitted", "discharged"),
            ("ordered", "delivered"),
        ),
        (
            Implies("code", "chapter", table(chapter_of)),
            Implies("code", "fee", table(fee_of)),
            Implies("district", "region", table(region_of)),
            Implies("age", "grown_up", table(1 * (np.arange(100) >= 18))),
            LessEqual("admitted", "discharged"),
            LessEqual("delivered", "ordered"),
        ),
    )


def xor() -> Law:
    """Return 12 columns with an XOR of three bits, and one of categories modulo 3."""

    def draw(n: int, rng: np.random.Generator) -> dict[str, Any]:
        table: dict[str, Any] = {"a0": rng.integers(0, 3, n)}
        for place in range(1, 6):  # a chain
            kept = rng.random(n) < 0.6
            table[f"a{place}"] = np.where(kept, table[f"a{place - 1}"], rng.integers(0, 3, n))
        first, second = rng.random((2, n)) < np.array([[0.5], [0.4]])
        flipped = rng.random(n) < 0.05
        table |= {"x": first.astype(np.int64), "y": second.astype(np.int64)}
        table["label"] = (first ^ second ^ flipped).astype(np.int64)
        u, v = rng.integers(0, 3, (2, n))
        table |= {"u": u, "v": v}
        table["w"] = np.where(rng.random(n) < 0.9, (u + v) % 3, rng.integers(0, 3, n))
        return table

    threes = [coded(name, 3) for name in ("a0", "a1", "a2", "a3", "a4", "a5", "u", "v", "w")]
    columns = (*threes, coded("x", 2), coded("y", 2), coded("label", 2))
    return Law(100_000, "label", columns, draw, (("x", "y", "label"), ("u", "v", "w")))


def wide(n_columns: int) -> Law:
    """Return categories in blocks of ten, each a tree, whose first columns form a chain."""
    constants = np.random.default_rng([1903, n_columns])
    sizes = constants.integers(2, 7, n_columns)
    sizes[-1] = 2
    shares = [constants.dirichlet(np.full(size, 2.0)) for size in sizes]
    parents = [
        column - 10 if column % 10 == 0 else int(constants.integers(column // 10 * 10, column))
        for column in range(n_columns)
    ]
    turns = constants.integers(0, 6, n_columns)
    strength = constants.uniform(0.3, 0.8, n_columns)
    causes = constants.choice(n_columns - 1, 6, replace=False)
    names = [f"c{column}" for column in range(n_columns - 1)] + ["label"]

    def draw(n: int, rng: np.random.Generator) -> dict[str, Any]:
        codes = np.empty((n_columns, n), dtype=np.int64)
        for column, size in enumerate(sizes):
            codes[column] = rng.choice(size, n, p=shares[column])
            if parents[column] >= 0:
                told = (codes[parents[column]] + turns[column]) % size
                codes[column] = np.where(rng.random(n) < strength[column], told, codes[column])
        signs = np.where(np.arange(6) % 2, 1.5, -1.5)
        codes[-1] = yes(signs @ (codes[causes] % 2) - 0.5, rng)
        return dict(zip(names, codes, strict=True))

    edges = [
        (names[column], names[parent]) for column, parent in enumerate(parents[:-1]) if parent >= 0
    ]
    columns = tuple(coded(name, size) for name, size in zip(names, sizes.tolist(), strict=True))
    related = tuple(edges) + tuple((names[cause], "label") for cause in causes)
    return Law(100_000, "label", columns, draw, related)


def long() -> Law:
    """Return a million rows of ten categories and five numbers."""
    constants = np.random.default_rng(1904)
    sizes = constants.integers(2, 13, 10)
    centres = [constants.standard_normal((6, size)) for size in sizes]

    def draw(n: int, rng: np.random.Generator) -> dict[str, Any]:
        group = rng.choice(6, n, p=[0.3, 0.25, 0.2, 0.1, 0.1, 0.05])
        table: dict[str, Any] = {}
        for place, centre in enumerate(centres):
            weights = np.exp(1.2 * centre)[group]
            if place:  # and the column before it
                same = np.arange(sizes[place]) == (table[f"c{place - 1}"] % sizes[place])[:, None]
                weights = weights * np.where(same, 3.0, 1.0)
            table[f"c{place}"] = chosen(weights, rng)
        noise = rng.standard_normal((5, n))
        table["age"] = (20 + 8 * group + 10 * noise[0]).clip(0, 100).astype(np.int64)
        table["pay"] = as_people_say(np.exp(7.0 + 0.3 * group + 0.6 * noise[1]), rng)
        table["days"] = rng.poisson(np.exp(1.0 + 0.2 * table["c0"])).clip(0, 1_000)
        table["score"] = (0.5 * noise[2] + 0.2 * group).clip(-10.0, 10.0)
        table["debt"] = np.where(noise[3] < 0.5, 0, whole_to(np.exp(6 + noise[4]), 10))
        logits = -1.0 + 0.8 * table["score"] + 0.02 * table["age"] - 0.1 * table["days"]
        table["c9"] = yes(logits, rng)
        return table

    columns = (
        *(coded(f"c{place}", int(size)) for place, size in enumerate(sizes[:9])),
        coded("c9", 2),
        whole("age", 0, 100),
        whole("pay", 0, 10_000_000),
        whole("days", 0, 1_000),
        NumericColumn("score", lower=-10.0, upper=10.0),
        whole("debt", 0, 10_000_000),
    )
    related = (*((f"c{place}", f"c{place + 1}") for place in range(8)), ("days", "c0"))
    return Law(1_000_000, "c9", columns, draw, related)


def credit() -> Law:
    """Return amounts as people have them: round, often zero, sometimes negative."""
    months = range(1, 7)

    def draw(n: int, rng: np.random.Generator) -> dict[str, Any]:
        risk, pay = rng.standard_normal((2, n))
        pay -= 0.35 * risk
        age = (21 + rng.gamma(2.2, 6.5, n)).clip(21, 79).astype(np.int64)
        limit = np.exp(11.7 + 0.75 * pay - 0.2 * risk + 0.006 * (age - 35))
        limit = whole_to(limit.clip(10_000, 1_000_000), 10_000)
        table: dict[str, Any] = {
            "limit": limit,
            "sex": rng.integers(0, 2, n) | (rng.random(n) < 0.2),
            "education": levels(-0.8 * pay + 0.7 * rng.standard_normal(n), -0.5, 0.6, 2.2),
            "marriage": levels(0.06 * (age - 33) + rng.standard_normal(n), -0.2, 2.6),
            "age": age,
        }
        late, use = rng.standard_normal((2, n))
        idle = rng.random(n) < 0.12
        for month in reversed(months):  # from the oldest
            late = 0.85 * late + 0.5 * rng.standard_normal(n)
            use = 0.93 * use + 0.35 * rng.standard_normal(n)
            state = levels(late + 0.9 * risk, -1.3, -0.2, 1.75, 2.0, 2.9, 3.3, 3.6, 3.9) - 2
            table[f"state_{month}"] = np.where(idle, -2, state)
            share = 1.0 / (1.0 + np.exp(-(1.4 * use + 0.8 * risk - 0.6)))
            bill = whole_to(limit * share, 100)
            bill = np.where(idle | (state == -2), whole_to(bill * 0.03, 100), bill)
            owed = rng.random(n)
            credit_note = -whole_to(np.exp(6.5 + 1.2 * rng.standard_normal(n)), 100)
            bill = np.where(owed < 0.03, credit_note, np.where(owed < 0.09, 0, bill))
            table[f"bill_{month}"] = bill
            some = bill * 0.04 * np.exp(0.9 * rng.standard_normal(n))
            step = np.where(rng.random(n) < 0.55, 1_000, np.where(rng.random(n) < 0.5, 100, 1))
            paid = np.where(state == -1, bill, whole_to(some, step))
            none = rng.random(n) < np.where(state > 0, 0.55, 0.08)
            table[f"paid_{month}"] = np.where(none | (bill <= 0), 0, paid)
        worst = np.maximum(table["state_1"], 0)
        logits = -1.9 + 1.2 * worst.clip(0, 3) + 0.6 * np.maximum(table["state_2"], 0).clip(0, 2)
        logits = logits - 0.5 * np.log(limit / 120_000) - 0.7 * (table["paid_1"] > 2_000)
        return table | {"default": yes(logits, rng)}

    columns = (
        whole("limit", 0, 1_000_000),
        coded("sex", 2),
        coded("education", 4),
        coded("marriage", 3),
        whole("age", 18, 100),
        *(whole(f"state_{month}", -2, 8) for month in months),
        *(whole(f"bill_{month}", -1_000_000, 10_000_000) for month in months),
        *(whole(f"paid_{month}", 0, 10_000_000) for month in months),
        coded("default", 2),
    )
    related = (
        *((f"bill_{month}", f"bill_{month + 1}") for month in range(1, 6)),
        *((f"bill_{month}", f"paid_{month}") for month in months),
        ("limit", "bill_1"),
        ("state_1", "default"),
    )
    return Law(30_000, "default", columns, draw, related)


def binary() -> Law:
    """Return 16 answers, yes or no, that one severity and two kinds explain."""
    constants = np.random.default_rng(1905)
    ease, load = constants.uniform(-0.5, 2.5, 16), constants.uniform(0.8, 2.5, 16)
    kind = constants.uniform(0.0, 1.5, (2, 16)) * (np.arange(16) // 8 == [[0], [1]])

    def draw(n: int, rng: np.random.Generator) -> dict[str, Any]:
        severity, kinds = rng.standard_normal(n) - 0.5, rng.standard_normal((n, 2))
        answers = np.outer(severity, load) + kinds @ kind - ease
        return {f"q{place}": yes(answers[:, place], rng) for place in range(16)}

    return Law(21_500, "q0", tuple(coded(f"q{place}", 2) for place in range(16)), draw)


def census() -> Law:
    """Return 12 categories of people, of which ten classes and a few links are behind."""
    constants = np.random.default_rng(1906)
    sizes = (9, 2, 16, 7, 14, 6, 5, 8, 3, 12, 4, 2)
    centres = [constants.standard_normal((10, size)) for size in sizes]
    usual = [1.5 * constants.standard_normal(size) for size in sizes]
    classes = constants.dirichlet(np.full(10, 3.0))

    def draw(n: int, rng: np.random.Generator) -> dict[str, Any]:
        group = rng.choice(10, n, p=classes)
        table: dict[str, Any] = {}
        for place, size in enumerate(sizes):
            logits = (1.1 * centres[place] + usual[place])[group]
            if place % 2:
                near = np.arange(size) - (table[f"p{place - 1}"] * size / sizes[place - 1])[:, None]
                logits = logits - 0.3 * near**2
            table[f"p{place}"] = chosen(np.exp(logits), rng)
        return table

    columns = tuple(coded(f"p{place}", size) for place, size in enumerate(sizes))
    related = tuple((f"p{place - 1}", f"p{place}") for place in range(1, 12, 2))
    return Law(60_000, "p11", columns, draw, related)


LAWS: dict[str, Callable[[], Law]] = {
    "credit": credit,
    "tails": tails,
    "rules": rules,
    "xor": xor,
    "binary": binary,
    "census": census,
    "wide100": lambda: wide(100),
    "wide300": lambda: wide(300),
    "long": long,
}
