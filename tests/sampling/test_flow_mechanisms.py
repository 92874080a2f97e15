"""Mechanisms of the flow sampler as parameters: searches, copies, texts, files, refusals."""

from dataclasses import replace

import numpy as np
import pytest
from sklearn.base import clone

from skdpot import DPSlicedFlowSampler
from skdpot.mechanisms import Presample, Resample, Sketch
from skdpot.ot.flow import FlowSchedule
from skdpot.ot.flow_problems import SlicedFlowProblem
from skdpot.ot.slices import CDFTable
from skdpot.sampling.autoencoder_mechanism import AutoencoderMechanism
from skdpot.sampling.code_penalties import CodePenalty
from skdpot.sampling.generator_mechanism import TrainingMechanism
from skdpot.sampling.generator_network import GeneratorNetwork
from skdpot.sampling.row_mechanism import FlowMechanism

X = np.random.default_rng(5).uniform(-1, 1, size=(300, 2))
QUICK = {"bounds": (-1, 1), "n_steps": 3, "n_particles": 40}
CASES = [
    Sketch(n_projections=4, n_bins=8, projections=np.eye(2)),
    Resample(batch_size=20, sampling="poisson", n_projections=3),
    Presample(n_projections=5, noise="float"),
]
KINDS = pytest.mark.parametrize("mechanism", CASES, ids=lambda one: type(one).__name__)


@KINDS
def test_the_fit_keeps_a_copy_and_not_the_parameter(mechanism):
    sampler = DPSlicedFlowSampler(mechanism, **QUICK)
    assert sampler.fit(X).mechanism is mechanism
    assert sampler.mechanism_ is not mechanism
    assert repr(sampler.mechanism_) == repr(mechanism)
    assert repr(clone(sampler).mechanism) == repr(mechanism)
    before = sampler.sample(30, random_state=0)
    sampler.set_params(mechanism="sketch")
    np.testing.assert_array_equal(sampler.sample(30, random_state=0), before)


class Frozen(FlowMechanism):
    """A mechanism that releases an object of its own: the distribution functions alone."""

    def release(self, context, rows, y, *, conditional, n_steps):
        result = Sketch().release(context, rows, y, conditional=conditional, n_steps=n_steps)
        return replace(result, value=result.value.table())

    def problem(self, released, radius, label):
        return SlicedFlowProblem(released)

    def schedule(self, released, n_steps, step_size, diffusion):
        return FlowSchedule(n_steps)


def test_a_release_may_be_any_object_that_its_mechanism_makes_a_problem_of():
    given = DPSlicedFlowSampler(Frozen(), epsilon=5.0, **QUICK).fit(X)
    assert isinstance(given.releases_, CDFTable)
    assert given.sample(10).shape == (10, 2)


@pytest.mark.parametrize(
    ("interface", "methods"),
    [
        (FlowMechanism, "problem, release, schedule"),
        (TrainingMechanism, "release"),
        (AutoencoderMechanism, "loss, release, train_public"),
        (CodePenalty, "distance"),
        (GeneratorNetwork, "build, dimension"),
    ],
)
def test_an_interface_names_what_a_subclass_must_define(interface, methods):
    assert ", ".join(sorted(interface.__abstractmethods__)) == methods
    with pytest.raises(TypeError, match="abstract"):
        interface()
