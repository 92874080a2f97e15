"""Estimators from one mapping of options: those of a mechanism go to it, the others stay."""

from typing import Any

from skdpot import DPSlicedFlowSampler, PrivateTrajectorySampler, PrivateWassersteinDistance


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
