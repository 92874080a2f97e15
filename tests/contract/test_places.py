"""Records of a batch do not move each other: what one adds is the same to the last bit.

Whoever is drawn beside it, and however many are: the account of sums over Poisson samples asks for
it (`skdpot.privacy.sampling`). Instructions and threads differ in the numerical part of CI.
"""

import numpy as np
import pytest
import torch
from torch import nn

from skdpot.fair.fair_loss import FairLoss
from skdpot.fair.training_rows import TrainingRows
from skdpot.nets import gradients
from skdpot.nets.compared_outputs import Probabilities
from skdpot.nets.gradients import pulled_back_sum, shares_of_vectors
from skdpot.sampling.autoencoder_training import AutoencoderLoss
from skdpot.trajectories.fit_gradient import clipped_shares
from tests.contract.fits import ROWS
from tests.core.nets.test_per_sample import Residual, flat

N_RECORDS = 50
EXTREMES = (1e30, float("nan"), -1e-40, float("inf"), -1e-300, 0.0)
# Odd widths: reductions of their rows depend on the place.
NETWORKS = {
    "linear": ((14,), nn.Linear(14, 1)),
    "rectified": ((7,), nn.Linear(7, 5), nn.ReLU(), nn.Linear(5, 3)),
    "smooth": (
        *((9,), nn.Linear(9, 20), nn.LayerNorm(20), nn.GELU()),
        *(nn.Linear(20, 6), nn.Sigmoid(), nn.Linear(6, 2)),
    ),
    "convolutions": (
        *((1, 9, 9), nn.Conv2d(1, 6, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(6, 9, 3), nn.GroupNorm(3, 9), nn.Flatten(), nn.Linear(36, 3)),
    ),
    "transposed": (
        *((5,), nn.Linear(5, 36), nn.Unflatten(1, (4, 3, 3)), nn.LeakyReLU()),
        *(nn.ConvTranspose2d(4, 2, 4, stride=2, padding=1), nn.Flatten(), nn.Linear(72, 3)),
    ),
    "not a chain": ((6,), Residual()),
}


def made(name, dtype):
    shape, *layers = NETWORKS[name]
    generator = torch.Generator().manual_seed(1)
    rows = torch.empty(N_RECORDS, *shape, dtype=torch.float64).normal_(generator=generator)
    return nn.Sequential(*layers).to(dtype), rows.to(dtype)


@pytest.fixture
def added(monkeypatch):
    """What each place of a batch adds: outputs, factors of Jacobians and clipped vectors."""
    seen = []

    def watched(total, jacobians, vectors, records):
        def noted(*given):
            chosen = vectors(*given)
            factors = [f for part in jacobians.parts for f in part.factors]
            seen[-1].append([jacobians.outputs, jacobians.gram(), chosen, *factors])
            return chosen

        add(total, jacobians, noted, records)

    add = gradients._add
    monkeypatch.setattr(gradients, "_add", watched)

    def run(network, rows, batch):
        def clipped(outputs, gram, records):
            own = outputs - rows[records].flatten(1).sum(1, keepdim=True).to(outputs)
            return own * shares_of_vectors(own, gram, 0.1)[:, None]

        seen.append([])
        pulled_back_sum(network, rows, clipped, batch=batch)
        return [torch.cat(parts) for parts in zip(*seen[-1], strict=True)]

    return run


ALONE = [(name, dtype, 1, 16, 1) for name in NETWORKS for dtype in (torch.float32, torch.float64)]
IN_TWO = [("rectified", torch.float64, 2, 48, 24), ("convolutions", torch.float32, 2, 48, 24)]


@pytest.mark.parametrize(("name", "dtype", "n_threads", "n_places", "together"), ALONE + IN_TWO)
def test_no_record_that_joins_changes_a_bit_of_another(
    name, dtype, n_threads, n_places, together, added
):
    """From nobody to a full batch; the stand-in for vacant places changes as well."""
    network, rows = made(name, dtype)
    rng, before = np.random.default_rng(0), torch.get_num_threads()
    batch, order = np.full(n_places, -1), rng.permutation(n_places)
    torch.set_num_threads(n_threads)
    try:
        found = added(network, rows, batch)
        for start in range(0, n_places, together):
            there, places = np.flatnonzero(batch >= 0), order[start : start + together]
            batch[places] = np.arange(start, start + together)
            for k in range(start, start + together):
                rows[k] *= 1.0 if k % 2 else EXTREMES[k // 2 % len(EXTREMES)]
            rows[-1] = rows[start]
            last, found = found, added(network, rows, batch)
            for one, other in zip(last, found, strict=True):
                np.testing.assert_array_equal(one[there], other[there])
    finally:
        torch.set_num_threads(before)


def test_vacant_places_add_exactly_nothing():
    """Whatever the stand-in is; in no batch at all there is nothing else."""
    for name in NETWORKS:
        network, rows = made(name, torch.float32)
        for last in EXTREMES:
            rows[-1] = last
            batch = np.full(16, -1)
            total = flat(network, pulled_back_sum(network, rows, lambda o, *_: o, batch=batch))
            assert not total.any()


def fair_sum(network, rows):
    targets = torch.ones(len(rows), dtype=torch.float64)
    loss = FairLoss(
        gradient=lambda outputs, given: outputs.sigmoid() - given[:, None],
        compared=Probabilities(1),
        alpha=0.0,
        clip=0.05,
    )
    return pulled_back_sum(network, rows, loss.joint_vectors(TrainingRows(rows, targets), None))


@pytest.mark.parametrize(
    ("task", "dtype"),
    [("predictor", torch.float64), ("predictor", torch.float32), ("autoencoder", torch.float32)],
)
def test_a_record_that_joins_moves_none_that_is_on_a_kink(task, dtype):
    """Copies of a row at which all units are about to switch on, and one without a gradient.

    The last bits of the units' inputs decide about the gradient of each copy. Were they rounded by
    the size of the batch, the sum would move by several times the clip: 4.0 in double precision,
    3.8 in single.
    """
    d, h, rng = 30, 16, np.random.default_rng(2)
    hidden = nn.Linear(d, h)
    if task == "predictor":
        network = nn.Sequential(hidden, nn.ReLU(), nn.Linear(h, 1, bias=False)).to(dtype)
    else:
        encoder = nn.Sequential(hidden, nn.ReLU(), nn.Linear(h, 2))
        network = nn.Sequential(encoder, nn.Linear(2, d)).to(dtype)
    generator = torch.Generator().manual_seed(2)
    for parameter in network.parameters():
        nn.init.uniform_(parameter, -0.2, 0.2, generator=generator)
    weights, offsets = (p.detach().double() for p in hidden.parameters())

    def row_of(inputs, near):
        gap = (inputs - offsets - weights @ near)[:, None]
        return (near + torch.linalg.lstsq(weights, gap).solution[:, 0]).to(dtype)

    def total(rows):
        summed = fair_sum if task == "predictor" else AutoencoderLoss(clip=0.05).clipped_sum
        extra = () if task == "predictor" else (None,)
        return torch.cat([v.flatten() for v in summed(network, rows, *extra).values()])

    off = row_of(torch.full((h,), -5.0).double(), torch.zeros(d).double())[None]
    own = total(off)
    for _ in range(4):
        on_kink = row_of(torch.zeros(h).double(), torch.from_numpy(3 * rng.normal(size=d)))
        for m in range(1, 16):
            copies = on_kink.expand(m, d).contiguous()
            moved = total(torch.cat([copies, off])) - own - total(copies)
            assert float(moved.norm()) < 1e-6 * 0.05


@pytest.mark.filterwarnings("ignore::skdpot.exceptions.PrivacyWarning")
@pytest.mark.parametrize(
    "name", ["autoencoder, batches", "classifier, batches", "adapter, batches"]
)
def test_arrays_of_two_fits_have_the_same_shapes(name, monkeypatch):
    """Whoever is in their samples."""
    jacobians, seen = gradients.record_jacobians, []

    def watched(network, rows, *given):
        seen[-1].append(tuple(rows.shape))
        return jacobians(network, rows, *given)

    monkeypatch.setattr(gradients, "record_jacobians", watched)
    for _ in "ab":
        seen.append([])
        ROWS[name].fitted()
    assert seen[0] == seen[1] != []


@pytest.mark.parametrize("n_particles", [1, 2, 7, 8, 33])
def test_a_record_pulls_at_particles_alike_in_every_sample(n_particles):
    """Sums of paths have no places: their arithmetic goes row by row."""
    rng = np.random.default_rng(3)
    for d, width in ((1, 0.3), (2, 1e-3), (5, 10.0)):
        particles, rows = rng.normal(size=(n_particles, d)), 2 * rng.normal(size=(40, d))
        given = {"bandwidth": width, "weight": 1.0, "clip": 0.5}
        shares = clipped_shares(particles, rows, **given)
        for n in range(1, 40):
            drawn = rng.choice(40, n, replace=False)
            found = clipped_shares(particles, rows[drawn], **given)
            np.testing.assert_array_equal(found, shares[drawn])
