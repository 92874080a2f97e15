"""Estimators from one mapping of options: those of its parts go to the parts, the others stay."""

from functools import partial
from typing import Any

from skdpot import (
    DPSlicedFlowSampler,
    DPSlicedGenerator,
    FairPrivateClassifier,
    FairPrivateRegressor,
    PrivateSWAutoencoder,
    PrivateTrajectorySampler,
    PrivateWassersteinDistance,
)
from skdpot.mechanisms import DPSGD, Architecture, CodeParity, LatentNetwork, PriorPenalty

# The parameters of an estimator that have parameters of their own: by name, and by default.
PARTS: dict[Any, dict[str, tuple[dict[str, Any], str | None]]] = {
    DPSlicedFlowSampler: {"mechanism": (DPSlicedFlowSampler._mechanisms, "sketch")},
    DPSlicedGenerator: {"mechanism": (DPSlicedGenerator._mechanisms, "sketch")},
    PrivateTrajectorySampler: {"mechanism": (PrivateTrajectorySampler._mechanisms, "sketch")},
    PrivateWassersteinDistance: {"protocol": (PrivateWassersteinDistance._mechanisms, "sliced")},
    FairPrivateClassifier: {"mechanism": (FairPrivateClassifier._mechanisms, "sketch")},
    FairPrivateRegressor: {"mechanism": (FairPrivateRegressor._mechanisms, "sketch")},
    PrivateSWAutoencoder: {
        "mechanism": ({"dpsgd": DPSGD}, "dpsgd"),
        "penalty": ({"prior": PriorPenalty, "parity": CodeParity}, None),
        "architecture": ({"networks": Architecture}, "networks"),
    },
}


def made(kind: Any, /, *args: Any, **options: Any) -> Any:
    """Return an estimator; options of parts that are not chosen are left out."""
    if kind in (FairPrivateClassifier, FairPrivateRegressor):
        options = {"alpha": 0.5, "tune_threshold": False} | options
    if kind is PrivateSWAutoencoder:
        options = {"comparison": "ranks"} | options
    if kind is DPSlicedGenerator and "latent_dim" in options:
        latent_dim = options.pop("latent_dim")
        options["module"] = LatentNetwork(options.get("module"), latent_dim=latent_dim)
    if "architecture" in options:
        options["networks"] = options.pop("architecture")
    for name, (kinds, default) in PARTS.get(kind, {}).items():
        part = options.pop(name, default)
        part = kinds[part]() if isinstance(part, str) and part in kinds else part
        own = part.get_params() if hasattr(part, "get_params") else {}
        others = {key for one in kinds.values() for key in one().get_params()}
        for key in (others - set(kind._get_param_names()) | set(own)) & set(options):
            value = options.pop(key)
            if key in own:
                part.set_params(**{key: value})
        options[name] = part
    return kind(*args, **options)


def chosen(kind: Any, /, part: Any = None, **options: Any) -> Any:
    """Return an estimator with this mechanism or protocol."""
    return made(kind, **({} if part is None else {next(iter(PARTS[kind])): part}), **options)


flow_sampler = partial(chosen, DPSlicedFlowSampler)
sliced_generator = partial(chosen, DPSlicedGenerator)
trajectory_sampler = partial(chosen, PrivateTrajectorySampler)
private_distance = partial(chosen, PrivateWassersteinDistance)
