"""Estimators that train networks, from flat options: each goes to the object that reads it."""

from typing import Any

from skdpot import FairPrivateClassifier, FairPrivateRegressor, PrivateSWAutoencoder
from skdpot.mechanisms import DPSGD, Architecture, CodeParity, PriorPenalty
from skdpot.mechanisms.fair import FAIR_MECHANISMS

__all__ = ["flat_options", "made"]

PENALTIES = {"prior": PriorPenalty, "parity": CodeParity}


def made(kind: type, /, *args: Any, **options: Any) -> Any:
    """Return an estimator; options of other kinds of estimators pass through."""
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
