"""A door: names that moved to other files of this package."""

from importlib import import_module
from typing import Any

_MOVED = {
    "FINITE": "skdpot._utils.finite",
    "SecretStream": "skdpot._utils.streams",
    "Streams": "skdpot._utils.streams",
    "as_finite": "skdpot._utils.finite",
    "as_line": "skdpot._utils.finite",
    "as_points": "skdpot._utils.finite",
    "check_confidence": "skdpot._utils.arguments",
    "check_count": "skdpot._utils.arguments",
    "check_covariance": "skdpot._utils.arguments",
    "check_real": "skdpot._utils.arguments",
    "check_same_features": "skdpot._utils.finite",
    "encode_labels": "skdpot._utils.labels",
    "image_rows": "skdpot._utils.rows",
    "in_threads": "skdpot._utils.threads",
    "label_column": "skdpot._utils.labels",
    "n_threads": "skdpot._utils.threads",
    "one_blas_thread": "skdpot._utils.threads",
    "read_rows": "skdpot._utils.rows",
    "record_features": "skdpot._utils.rows",
    "resolve_device": "skdpot._utils.devices",
    "solver_generator": "skdpot._utils.streams",
    "spawn_streams": "skdpot._utils.streams",
    "torch_randomness": "skdpot._utils.streams",
    "validate_frame": "skdpot._utils.rows",
    "validate_rows": "skdpot._utils.rows",
    "validate_targets": "skdpot._utils.labels",
    "without_groups": "skdpot._utils.rows",
}


def __getattr__(name: str) -> Any:
    if name.startswith("__"):
        raise AttributeError(name)
    return getattr(import_module(_MOVED.get(name, "skdpot._utils.parameters")), name)
