"""Estimators from one mapping of options: those of a mechanism go to it, the others stay."""

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
from skdpot.mechanisms.fair import FAIR_MECHANISMS

PENALTIES = {"prior": PriorPenalty, "parity": CodeParity}


def with_mechanism(estimator: Any, mechanism: Any, *args: Any, **options: Any) -> Any:
    """Make an estimator whose mechanism takes the options that carry its parameters' names."""
    if isinstance(mechanism, str):
        mechanism = estimator._mechanisms[mechanism]()
    names = set(mechanism.get_params())
    mechanism.set_params(**{name: value for name, value in options.items() if name in names})
    own = {name: value for name, value in options.items() if name not in names}
    return estimator(mechanism, *args, **own)


def flow_sampler(mechanism: Any = "sketch", *args: Any, **options: Any) -> DPSlicedFlowSampler:
    """Make a flow sampler."""
    return with_mechanism(DPSlicedFlowSampler, mechanism, *args, **options)


def sliced_generator(mechanism: Any = "sketch", *args: Any, **options: Any) -> DPSlicedGenerator:
    """Make a generator; options of the other mechanisms are left out."""
    if "latent_dim" in options:
        options["module"] = LatentNetwork(
            options.pop("module", None), latent_dim=options.pop("latent_dim")
        )
    if isinstance(mechanism, str):
        mechanism = DPSlicedGenerator._mechanisms[mechanism]()
    others = {
        name for kind in DPSlicedGenerator._mechanisms.values() for name in kind().get_params()
    }
    own = set(mechanism.get_params())
    options = {k: v for k, v in options.items() if k in own or k not in others}
    return with_mechanism(DPSlicedGenerator, mechanism, *args, **options)


def trajectory_sampler(
    mechanism: Any = "sketch", *args: Any, **options: Any
) -> PrivateTrajectorySampler:
    """Make a trajectory sampler."""
    return with_mechanism(PrivateTrajectorySampler, mechanism, *args, **options)


def private_distance(
    protocol: Any = "sliced", *args: Any, **options: Any
) -> PrivateWassersteinDistance:
    """Make an estimator of distances."""
    return with_mechanism(PrivateWassersteinDistance, protocol, *args, **options)


def made(kind: type, /, *args: Any, **options: Any) -> Any:
    """Return an estimator; options of other kinds of estimators pass through."""
    if kind is DPSlicedGenerator:
        return sliced_generator(*args, **options)
    return kind(*args, **flat_options(kind, **options))


def flat_options(kind: type, /, **options: Any) -> dict[str, Any]:
    """Return the arguments of the constructor; what nothing of this kind reads is left out."""
    if not isinstance(kind, type):
        return options
    if issubclass(kind, FairPrivateClassifier | FairPrivateRegressor):
        chosen = options.pop("mechanism", "sketch")
        options = _held(options, "mechanism", FAIR_MECHANISMS, chosen)
        if issubclass(kind, FairPrivateRegressor):
            options.pop("fairness", None)
    elif issubclass(kind, PrivateSWAutoencoder):
        options = _held(options, "mechanism", {"dpsgd": DPSGD}, "dpsgd")
        chosen = options.pop("penalty", None)
        if chosen is None or chosen in PENALTIES:
            options = _held(options, "penalty", PENALTIES, chosen)
        else:  # refused, as it should be
            options["penalty"] = chosen
        if "architecture" in options:
            options["networks"] = options.pop("architecture")
        options = _held(options, "architecture", {"networks": Architecture}, "networks")
    return options


def _held(
    options: dict[str, Any], name: str, kinds: dict[str, type], chosen: str | None
) -> dict[str, Any]:
    """Move what an object reads into it."""
    known = {key for kind in kinds.values() for key in kind().get_params()}
    rest = {key: value for key, value in options.items() if key not in known}
    if chosen is None:
        return rest | {name: None}
    kind = kinds[chosen]
    own = {key: options[key] for key in kind().get_params() if key in options}
    return rest | {name: kind(**own)}
