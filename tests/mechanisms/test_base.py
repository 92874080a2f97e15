"""Mechanisms as objects: shorthand, validation, copies, nested parameters."""

from numbers import Integral

import numpy as np
import pytest

from skdpot._utils.validation import Interval
from skdpot.mechanisms import Mechanism, chosen_mechanism


class Batches(Mechanism):
    _parameter_constraints = {"batch_size": [Interval(Integral, 1, None, closed="left")]}

    def __init__(self, batch_size=250):
        self.batch_size = batch_size


REGISTRY = {"batches": Batches}


def test_a_name_is_short_for_the_default_object():
    assert chosen_mechanism("batches", REGISTRY).get_params() == Batches().get_params()


def test_the_object_that_was_passed_stays_as_it_is():
    given = Batches(10)
    chosen = chosen_mechanism(given, REGISTRY)
    assert chosen is not given
    assert chosen.batch_size == 10


@pytest.mark.parametrize("wrong", [0, 1.5, np.array([[3.0]])])
def test_parameters_are_validated_without_quoting_arrays(wrong):
    with pytest.raises(ValueError, match=r"'batch_size' parameter of Batches must be") as refused:
        chosen_mechanism(Batches(wrong), REGISTRY)
    assert not isinstance(wrong, np.ndarray) or "3." not in str(refused.value)
    assert refused.value.__context__ is None
