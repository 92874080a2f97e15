"""The states of a flow: where they begin and end, what they cost, and that flows stay the same."""

import pickle
import warnings

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.exceptions import NotFittedError

from skdpot import DPSlicedFlowSampler, PrivacyBudget
from skdpot.exceptions import PrivacyWarning
from skdpot.ot.flow import FlowSchedule, sliced_flow
from skdpot.ot.flow_problems import SlicedFlowProblem
from tests.flat_options import flow_sampler

RNG = np.random.default_rng(515)
X = np.clip(RNG.normal(size=(600, 3)) * 0.2 + [0.3, -0.4, 0.0], -1, 1) * [1, 2, 10]
Y = (RNG.random(600) < 0.3).astype(int)
OPTIONS = {"bounds": ([-1, -2, -10], [1, 2, 10]), "n_projections": 12, "n_bins": 32, "n_steps": 40}


@pytest.fixture(scope="module")
def sampler():
    return flow_sampler(epsilon=np.inf, **OPTIONS).fit(X)


@pytest.mark.parametrize("device", [None, torch.device("cpu")], ids=["numpy", "torch"])
def test_recording_does_not_change_the_flow(sampler, device):
    problem, schedule = SlicedFlowProblem(sampler.sketch_.table()), FlowSchedule(20)

    def flow(record_at):
        rng = np.random.default_rng(3)
        return sliced_flow(problem, 300, schedule, rng, device=device, record_at=record_at)

    plain, recorded = flow(()), flow([0, 1, 7, 20])
    assert plain.recorded == {}
    np.testing.assert_array_equal(plain.particles, recorded.particles)
    assert list(recorded.recorded) == [0, 1, 7, 20]
    states = recorded.recorded
    np.testing.assert_array_equal(states[20], recorded.particles)
    np.testing.assert_array_equal(states[0], problem.start(300, np.random.default_rng(3)))
    # A state is that of its step: the first one is a single displacement away.
    moved = np.sqrt(np.mean(np.sum((states[1] - states[0]) ** 2, axis=1)))
    assert moved == pytest.approx(recorded.displacements[0], rel=1e-5)


def test_the_end_of_a_trace_is_a_sample(sampler):
    trace = sampler.trace([0, 40], n_particles=500)
    assert trace.particles.shape == (2, 500, 3)
    assert trace.steps.tolist() == [0, 40]
    assert trace.labels is trace.classes is None
    # In the units of the data: the third feature has a tenfold spread.
    end = trace.particles[1]
    assert (np.abs(end.mean(axis=0) - X.mean(axis=0)) < 0.1 * np.abs(X).max(axis=0)).all()
    assert 3 < end[:, 2].std() / end[:, 0].std() < 30
    assert sampler.sketch_.distance(end) < 2.5 * sampler.sketch_.distance(sampler.particles_)


def test_classes_have_flows_of_their_own():
    shift = np.where(Y == 1, 0.5, -0.5)[:, None] * np.array([1, 0, 0])
    fitted = flow_sampler(epsilon=np.inf, conditional=True, **OPTIONS).fit(X + shift, Y)
    trace = fitted.trace([0, 3, 40], n_particles=200)
    assert trace.distances.shape == (2, 3)
    assert trace.classes.tolist() == [0, 1]
    assert np.mean(trace.labels == 1) == pytest.approx(Y.mean(), abs=0.01)
    means = [trace.particles[-1, trace.labels == label, 0].mean() for label in (0, 1)]
    assert means[0] < means[1] - 0.5
    assert (trace.distances[:, -1] < trace.distances[:, 0]).all()


def test_steps_are_sorted_and_by_default_some_from_start_to_end(sampler):
    steps = sampler.trace(n_particles=300).steps
    assert steps[[0, 1, -1]].tolist() == [0, 1, 40]
    assert (np.diff(steps) > 0).all()
    assert len(steps) < 26
    assert sampler.trace([5, 0, 5], n_particles=10).steps.tolist() == [0, 5]
    assert sampler.trace(7, n_particles=10).steps.tolist() == [7]


def test_a_trace_is_free_and_leaves_the_sampler_alone():
    budget = PrivacyBudget(epsilon=3.0)
    fitted = flow_sampler(epsilon=2.0, budget=budget, **OPTIONS).fit(X)
    before = pickle.dumps(vars(fitted))
    fitted.trace()
    assert len(budget.history()) == 1
    assert pickle.dumps(vars(fitted)) == before


@pytest.mark.parametrize("mechanism", ["resample", "presample"])
def test_rows_have_states_and_no_distance(mechanism):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PrivacyWarning)
        fitted = flow_sampler(
            mechanism, epsilon=9.0, bounds=([-1, -2, -10], [1, 2, 10]), n_steps=6
        ).fit(pd.DataFrame(X, columns=["a", "b", "c"]))
    trace = fitted.trace(n_particles=50)
    assert trace.distances is None
    assert trace.particles.shape[1:] == (50, 3)
    assert trace.steps[-1] == 6


@pytest.mark.parametrize("steps", [[], [41], [-1], [2.5], ["1"], [True], 41])
def test_what_is_refused(sampler, steps):
    with pytest.raises(ValueError, match="steps must be integers from 0, the start, to 40"):
        sampler.trace(steps)
    with pytest.raises(ValueError, match="n_particles == 0, must be >= 1"):
        sampler.trace(n_particles=0)
    with pytest.raises(NotFittedError):
        DPSlicedFlowSampler().trace()
