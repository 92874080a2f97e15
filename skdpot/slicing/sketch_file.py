"""Sketches on disk: numbers in an ``.npz``, facts as JSON, no pickles."""

import json
import math
import zipfile
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from skdpot.privacy import events
from skdpot.privacy.data_bounds import DataBounds
from skdpot.privacy.events import ComposedEvent, Event
from skdpot.privacy.relation import Relation
from skdpot.privacy.spent import PrivacySpent
from skdpot.slicing.histogram import bin_edges

__all__ = ["read_sketch", "write_sketch"]

_FORMAT = "skdpot.SlicedSketch"
_VERSION = 1
_ARRAYS = ("directions_", "half_widths_", "statistic_", "classes_", "feature_names_in_")
_PARAMETERS = ("epsilon", "delta", "norm_bound", "conditional")


def write_sketch(sketch: Any, path: str | Path) -> None:
    """Write a closed sketch.

    Parameters
    ----------
    sketch : SlicedSketch
        Closed.
    path : str or Path
        File to write; an existing file is replaced.

    Raises
    ------
    ValueError
        If the classes are neither numbers nor strings.
    """
    arrays = {name: getattr(sketch, name) for name in _ARRAYS if hasattr(sketch, name)}
    for name in ("classes_", "feature_names_in_"):
        if name in arrays and arrays[name].dtype == object:
            arrays[name] = _as_text(arrays[name], name)
    spent = sketch.privacy_spent_
    facts = {
        "format": _FORMAT,
        "version": _VERSION,
        "n_samples": sketch.n_samples_,
        "noise_scale": sketch.noise_scale_,
        "parameters": {name: _plain(getattr(sketch, name)) for name in _PARAMETERS},
        "declared_bounds": not isinstance(sketch.bounds, str),
        "spent": {
            "epsilon": spent.epsilon,
            "delta": spent.delta,
            "sigma": spent.sigma,
            "sensitivity": spent.sensitivity,
            "assumptions": spent.assumptions,
            "mechanism": spent.mechanism,
            "event": _event_to_dict(spent.event),
        },
    }
    bounds = {f"bounds_{name}": value for name, value in sketch.bounds_.to_dict().items()}
    with Path(path).open("wb") as file:
        np.savez_compressed(file, facts=np.array(json.dumps(facts)), **arrays, **bounds)


def read_sketch(path: str | Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """Read and validate what `write_sketch` wrote.

    Parameters
    ----------
    path : str or Path
        File to read. It may come from another party: nothing in it is executed.

    Returns
    -------
    parameters, fitted : dict
        Constructor parameters and fitted attributes.

    Raises
    ------
    ValueError
        If the file is not a sketch, of an unknown version, or inconsistent.
    """
    arrays = _read_arrays(Path(path))
    facts = json.loads(str(arrays.pop("facts")))
    if not isinstance(facts, dict):
        raise ValueError(f"{Path(path).name} is not a sketch: its facts are of another kind.")
    if facts.get("format") != _FORMAT or facts.get("version") != _VERSION:
        raise ValueError(
            f"{Path(path).name} has format {facts.get('format')!r}, version "
            f"{facts.get('version')!r}; this release reads {_FORMAT!r}, version {_VERSION}."
        )
    try:
        return _rebuild(facts, arrays)
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"{Path(path).name} lacks an entry, or has a wrong one.") from error


def _read_arrays(path: Path) -> dict[str, np.ndarray]:
    """Return the arrays of an ``.npz`` file; no other kind of file is opened."""
    try:
        # Opened as a zip archive here, because numpy would also read other formats.
        with zipfile.ZipFile(path) as archive:
            names = [name.removesuffix(".npy") for name in archive.namelist()]
        with path.open("rb") as stream, np.load(stream, allow_pickle=False) as file:
            arrays = {name: file[name] for name in names}
    except (zipfile.BadZipFile, KeyError, EOFError) as error:
        raise ValueError(f"{path.name} is not a sketch, or it is damaged.") from error
    if "facts" not in arrays:
        raise ValueError(f"{path.name} is not a sketch: it has no entry 'facts'.")
    return arrays


def _rebuild(
    facts: dict[str, Any], arrays: dict[str, np.ndarray]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return parameters and fitted attributes from the parts of a file."""
    bounds = DataBounds.from_dict(
        {name: arrays.pop(f"bounds_{name}") for name in ("center", "scale", "radius", "box")}
    )
    _check_shapes(arrays, bounds)
    for name, least in (("n_samples", 1), ("noise_scale", 0)):
        if not least <= facts[name] < math.inf:
            raise ValueError(f"{name} of the file is {facts[name]!r}, which cannot be.")
    parameters = {name: facts["parameters"][name] for name in _PARAMETERS}
    parameters["slices"] = arrays["directions_"]
    parameters["n_bins"] = arrays["statistic_"].shape[-1]
    if facts["declared_bounds"]:
        side = bounds.scale * bounds.radius / math.sqrt(bounds.n_features)
        parameters["bounds"] = (bounds.center - side, bounds.center + side)
    spent = facts["spent"]
    event = _event_from_dict(spent.pop("event"))
    spent["assumptions"] = tuple(spent["assumptions"])
    fitted: dict[str, Any] = {
        **arrays,
        "bounds_": bounds,
        "n_samples_": int(facts["n_samples"]),
        "noise_scale_": float(facts["noise_scale"]),
        "n_features_in_": bounds.n_features,
        "privacy_spent_": PrivacySpent(relation=event.relation, event=event, **spent),
    }
    if "feature_names_in_" in fitted:
        fitted["feature_names_in_"] = fitted["feature_names_in_"].astype(object)
    return parameters, fitted


def _check_shapes(arrays: dict[str, np.ndarray], bounds: DataBounds) -> None:
    unknown = set(arrays) - set(_ARRAYS)
    missing = {"directions_", "half_widths_", "statistic_"} - set(arrays)
    if unknown or missing:
        raise ValueError(f"The file lacks {sorted(missing)} and has unknown {sorted(unknown)}.")
    directions, statistic = arrays["directions_"], arrays["statistic_"]
    n_classes = len(arrays["classes_"]) if "classes_" in arrays else 1
    consistent = (
        directions.ndim == 2
        and directions.shape[1] == bounds.n_features
        and arrays["half_widths_"].shape == (len(directions),)
        and statistic.ndim == 3
        and statistic.shape[:2] == (n_classes, len(directions))
    )
    numbers = (directions, statistic, bin_edges(arrays["half_widths_"], 1))
    if not (consistent and all(np.isfinite(values).all() for values in numbers)):
        raise ValueError("The arrays of the file have inconsistent shapes or non-finite values.")


def _plain(value: Any) -> Any:
    """Return a parameter as the built-in type that JSON writes."""
    return value.item() if isinstance(value, np.generic) else value


def _as_text(values: np.ndarray, name: str) -> np.ndarray:
    if not all(isinstance(value, str) for value in values):
        raise ValueError(f"{name} holds objects that are not strings and cannot be saved.")
    return values.astype(str)


def _event_to_dict(event: Event) -> dict[str, Any]:
    fields: dict[str, Any] = {"type": type(event).__name__}
    if isinstance(event, ComposedEvent):
        return fields | {"events": [_event_to_dict(part) for part in event.events]}
    return fields | asdict(event)


def _event_from_dict(fields: dict[str, Any]) -> Event:
    fields = dict(fields)
    kind = getattr(events, str(fields.pop("type")), None)
    if not (isinstance(kind, type) and issubclass(kind, Event)):
        raise ValueError("The file names an event that is not known.")
    if issubclass(kind, ComposedEvent):
        return kind(events=tuple(_event_from_dict(part) for part in fields["events"]))
    fields["relation"] = Relation(fields["relation"])
    return kind(**fields)
