"""What a fitted synthesizer consists of, for files, and whether it can be true.

Nothing in a record is executed, and one whose parts contradict each other (counts that are more
precise than the stated noise allows, a smaller epsilon than the events cost) is refused.
"""

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from skdpot.preprocessing.table_schema import TableSchema
from skdpot.privacy.events import GaussianEvent, NonPrivateEvent, ThresholdedCountsEvent
from skdpot.privacy.relation import Relation
from skdpot.privacy.spent import PrivacySpent
from skdpot.slicing.event_record import leaves
from skdpot.slicing.marginal_release import MARGINAL_SENSITIVITY
from skdpot.slicing.marginals import NoisyMarginal
from skdpot.slicing.statement_record import (
    LARGEST_COUNT,
    as_plain,
    check_cost,
    check_epsilon_delta,
    mu_of_choice,
    restoring,
    statement_from_dict,
    statement_to_dict,
)
from skdpot.tables.column_grid import column_grid
from skdpot.tables.model import TableModel
from skdpot.tables.model_record import model_from_record, model_to_record
from skdpot.tables.plan import shares_of

__all__ = ["TableRecord"]

_NOUN = "synthesizer"
_PARAMETERS = ("epsilon", "delta", "target", "n_particles")
_FACTS = {
    "kind", "n_samples", "parameters", "schema", "given_schema", "feature_names", "spent",
    "tree_target", "marginals",
}  # fmt: skip
_KINDS = ("pandas", "polars", "array")
_MOST_COLUMNS = 4096
_ROUNDING = 1e-9


@dataclass(frozen=True, eq=False)
class TableRecord:
    """The released parts of a fitted synthesizer.

    Parameters
    ----------
    facts : dict
        What JSON can hold; an epsilon may be infinite.
    arrays : dict of str to ndarray
        Numbers.
    """

    facts: dict[str, Any]
    arrays: dict[str, np.ndarray]

    @classmethod
    def of(cls, synthesizer: Any) -> "TableRecord":
        """Return the record of a fitted synthesizer.

        Parameters
        ----------
        synthesizer : DPTableSynthesizer
            Fitted.

        Returns
        -------
        TableRecord
        """
        model, arrays = model_to_record(synthesizer.model_)
        given = synthesizer.schema
        if not (given is None or isinstance(given, TableSchema)):
            given = synthesizer.schema_  # whoever reads the record lacks the file that it was in
        names = getattr(synthesizer, "feature_names_in_", None)
        facts = {
            **model,
            "kind": synthesizer._kind,
            "n_samples": int(synthesizer.n_samples_),
            "parameters": {name: as_plain(getattr(synthesizer, name)) for name in _PARAMETERS},
            "schema": json.loads(synthesizer.schema_.to_json()),
            "given_schema": None if given is None else json.loads(given.to_json()),
            "feature_names": None if names is None else [str(name) for name in names],
            "spent": statement_to_dict(synthesizer.privacy_spent_),
        }
        return cls(facts, arrays)

    def restore(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """Validate the record and return what a synthesizer is made of.

        Returns
        -------
        parameters, fitted : dict
            Constructor parameters and fitted attributes.

        Raises
        ------
        ValueError
            If something is missing, of a wrong type or size, or cannot be true.
        """
        with restoring(_NOUN):
            return self._rebuild()

    def _rebuild(self) -> tuple[dict[str, Any], dict[str, Any]]:
        facts = self.facts
        if set(facts) != _FACTS:
            raise ValueError(f"The {_NOUN} lacks a fact, or has an unknown one.")
        schema = _read_schema(facts["schema"])
        if not schema.is_resolved:
            raise ValueError(f"The schema of the {_NOUN} leaves bounds or categories open.")
        given = facts["given_schema"]
        parameters = _read_parameters(facts["parameters"], schema)
        parameters["schema"] = None if given is None else _read_schema(given)
        kind, n_samples = facts["kind"], facts["n_samples"]
        if kind not in _KINDS:
            raise ValueError(f"The {_NOUN} makes tables of an unknown kind.")
        if not (type(n_samples) is int and 2 <= n_samples <= LARGEST_COUNT):
            raise ValueError(f"n_samples of the {_NOUN} is {n_samples!r:.40}, which cannot be.")
        names = _read_names(facts["feature_names"], schema, kind)
        grids = tuple(column_grid(column) for column in schema)
        model = model_from_record(facts, self.arrays, grids, n_samples)
        _check_target(model, parameters["target"], schema)
        spent = statement_from_dict(facts["spent"], _NOUN)
        _check_statement(spent, model)
        fitted: dict[str, Any] = {
            "schema_": schema,
            "marginals_": (*model.columns, *model.marginals),
            "model_": model,
            "n_samples_": n_samples,
            "privacy_spent_": spent,
            "n_features_in_": len(schema) if names is None else len(names),
            "_kind": kind,
            "_grids": grids,
        }
        if names is not None:
            fitted["feature_names_in_"] = np.array(names, dtype=object)
        return parameters, fitted


def _read_schema(content: Any) -> TableSchema:
    """Rebuild a schema; its own class checks the columns."""
    if not 1 <= len(content["columns"]) <= _MOST_COLUMNS:
        raise ValueError(f"The {_NOUN} has no columns, or more than {_MOST_COLUMNS}.")
    return TableSchema.from_json(json.dumps(content))


def _read_parameters(given: Any, schema: TableSchema) -> dict[str, Any]:
    if set(given) != set(_PARAMETERS):
        raise ValueError(f"The {_NOUN} lacks one of its parameters, or has an unknown one.")
    check_epsilon_delta(given["epsilon"], given["delta"], _NOUN)
    target, n_particles = given["target"], given["n_particles"]
    if not (target is None or target in schema.names):
        raise ValueError(f"The target of the {_NOUN} is no column.")
    if not (n_particles is None or (type(n_particles) is int and n_particles >= 100)):
        raise ValueError(f"n_particles of the {_NOUN} cannot be.")
    return dict(given)


def _read_names(names: Any, schema: TableSchema, kind: str) -> list[str] | None:
    """Return the names of the columns that it was fitted to, those that it left out among them."""
    if names is None and kind == "array":
        return None
    if not (
        isinstance(names, list)
        and all(isinstance(name, str) for name in names)
        and len(set(names)) == len(names)
        and tuple(name for name in names if name not in schema.excluded) == schema.names
    ):
        raise ValueError(f"The columns of the {_NOUN} are not those of its schema.")
    return names


def _check_target(model: TableModel, target: str | None, schema: TableSchema) -> None:
    due = None if target is None or len(schema) == 1 else schema.names.index(target)
    if model.tree.target != due:
        raise ValueError(f"The tree of the {_NOUN} does not hang on its target.")


def _check_statement(spent: PrivacySpent, model: TableModel) -> None:
    """Refuse a statement that promises more than its own events and the noise of counts give."""
    events = leaves(spent.event)
    charged = mu_of_choice(spent)
    kinds = (GaussianEvent, ThresholdedCountsEvent, NonPrivateEvent)
    if charged is None and not all(type(event) in kinds for event in events):
        raise ValueError(f"A {_NOUN} releases counts with Gaussian noise, and nothing else.")
    if spent.relation is not Relation.REPLACE_ONE:
        raise ValueError(f"A {_NOUN} is private under replace-one, and states no other relation.")
    if any(isinstance(event, NonPrivateEvent) for event in events):
        if math.isfinite(spent.epsilon):
            raise ValueError(f"The {_NOUN} states a finite epsilon for a release without noise.")
        return
    check_cost(spent, _NOUN)
    if charged is not None:
        _check_precision((*model.columns, *model.marginals), charged**2)
        return
    scales = [_scales(event) for event in events]
    for stated, due in zip(
        (spent.sigma, spent.sensitivity), zip(*scales, strict=True), strict=True
    ):
        if not (
            isinstance(stated, tuple)
            and len(stated) == len(due)
            and all(
                math.isclose(*pair, rel_tol=_ROUNDING) for pair in zip(stated, due, strict=True)
            )
        ):
            raise ValueError(f"The noise that the {_NOUN} states is not that of its events.")
    _check_noise(scales, model)


def _check_noise(scales: list[tuple[float, float]], model: TableModel) -> None:
    """Refuse counts with less noise than was charged for their own release."""
    releases = list(shares_of(len(model.columns)))
    paid = [(sensitivity / sigma) ** 2 for sigma, sensitivity in scales[-len(releases) :]]
    if len(paid) < len(releases):
        raise ValueError(f"The statement of the {_NOUN} lacks some of its releases.")
    charged = dict(zip(releases, paid, strict=True))
    # A pair may be released twice; it is kept once, with the precision of both.
    pairs = charged.get("tree", 0.0) + charged.get("pairs", 0.0)
    for counts, limit in ((model.columns, charged["columns"]), (model.marginals, pairs)):
        _check_precision(counts, limit)


def _check_precision(counts: Sequence[NoisyMarginal], limit: float) -> None:
    """Refuse counts of which the squared mu exceeds a limit."""
    sigmas = [noisy.sigma for noisy in counts]
    if 0.0 in sigmas or sum((MARGINAL_SENSITIVITY / sigma) ** 2 for sigma in sigmas) > (
        limit * (1 + _ROUNDING)
    ):
        raise ValueError(f"The counts of the {_NOUN} have less noise than its statement says.")


def _scales(event: Any) -> tuple[float, float]:
    """Return the noise of a release and its sensitivity, of all columns and steps together."""
    n_releases = event.n_columns if isinstance(event, ThresholdedCountsEvent) else event.n_steps
    return event.sigma, event.sensitivity * math.sqrt(n_releases)
