r"""Steps that train a predictor of which the outputs of groups are alike, with privacy.

What is minimised is :math:`(1 - \alpha)` times the mean loss plus :math:`\alpha` times the squared
(sliced) Wasserstein distance between the groups' outputs (`skdpot.nets.parity_penalty`). Two
private gradients of it are here.

*Ranks*, the paper's: the outputs of a batch are compared with each other. One record moves the
terms of others by a rank, which the sensitivity pays for; batches have a fixed size a cell.

*Tables*: a few times during training the distributions of all outputs are released
(`skdpot.nets.output_tables`). They give each record a point halfway to where the other group has
its like. Until the next release the penalty is a sum of squared distances to these points, so that
it is clipped together with the loss, and one record moves only its own term.
"""

from collections.abc import Sequence

import numpy as np
from torch import nn

from skdpot._utils.rng import SecretStream
from skdpot.nets.anchors import Anchors
from skdpot.nets.cells import Cells
from skdpot.nets.fair_loss import FairLoss, Records, network_outputs
from skdpot.nets.noisy_step import release_gradient
from skdpot.nets.output_tables import OutputTables, TableNoise, release_tables
from skdpot.nets.parity_penalty import ParityPenalty
from skdpot.nets.training import GradientStep
from skdpot.nets.training_plan import TrainingPlan

__all__ = ["ranked_steps", "tabled_steps"]


def ranked_steps(
    loss: FairLoss,
    records: Records,
    cells: Cells,
    penalty: ParityPenalty | None,
    directions: Sequence[np.ndarray],
    plan: TrainingPlan,
    secret: SecretStream,
) -> GradientStep:
    """Make the steps of training by ranks.

    Parameters
    ----------
    loss : FairLoss
        What is minimised.
    records : Records
        All private records.
    cells : Cells
        Their division.
    penalty : ParityPenalty or None
        What compares the cells of a batch.
    directions : sequence of ndarray of shape (n_slices, k)
        Public directions of each step.
    plan : TrainingPlan
        Batches and noise; its event has been charged.
    secret : SecretStream
        Draws batches and noise.

    Returns
    -------
    callable
        For `skdpot.nets.training.train_network`.

    Privacy
    -------
    Each step releases one noisy sum, on a lattice.
    """
    batches = plan.batches(secret, cells.members)

    def step(network: nn.Module, number: int) -> None:
        batch = records.take(next(batches))
        total = loss.ranked_sum(network, batch, penalty, directions[number])
        facts = {
            "loss": loss,
            "cells": cells,
            "plan": plan,
            "penalty": penalty,
            "directions": directions[number],
        }
        release_gradient(total, plan.noise, plan.batch_size, secret, facts)

    return step


def tabled_steps(
    loss: FairLoss,
    records: Records,
    cells: Cells,
    plan: TrainingPlan,
    noise: TableNoise | None,
    release_at: Sequence[int],
    n_slices: int,
    secret: SecretStream,
    public: np.random.Generator,
) -> GradientStep:
    """Make the steps of training by released tables.

    Parameters
    ----------
    loss : FairLoss
        What is minimised.
    records : Records
        All private records.
    cells : Cells
        Their division.
    plan : TrainingPlan
        Poisson batches and noise; its event, the releases included, has been charged.
    noise : TableNoise or None
        Of the tables; None makes no release.
    release_at : sequence of int
        Numbers of the steps before which tables are released.
    n_slices : int
        Directions of a table.
    secret : SecretStream
        Draws batches and noise.
    public : numpy.random.Generator
        Draws directions.

    Returns
    -------
    callable
        For `skdpot.nets.training.train_network`.

    Privacy
    -------
    Each step releases one noisy sum, and each release a noisy table of all cells, all of them on
    lattices.
    """
    batches = plan.batches(secret)
    directions = loss.compared.directions(n_slices, public)
    limits = loss.compared.half_widths(directions)
    tables: OutputTables | None = None
    anchors: Anchors | None = None

    def release(network: nn.Module, of_noise: TableNoise) -> tuple[OutputTables, Anchors]:
        values = loss.compared.values(network_outputs(network, records.rows)).cpu().numpy()
        released = release_tables(
            values,
            cells.codes,
            cells.sizes,
            directions,
            limits,
            of_noise,
            secret,
            previous=tables,
        )
        return released, Anchors.of_release(released, values, cells)

    def step(network: nn.Module, number: int) -> None:
        nonlocal tables, anchors
        if noise is not None and number in release_at:
            tables, anchors = release(network, noise)
        batch = next(batches)
        of_batch = None if anchors is None else anchors.take(batch)
        total = loss.anchored_sum(network, records.take(batch), of_batch, cells)
        facts = {"loss": loss, "cells": cells, "plan": plan, "tables": tables}
        release_gradient(total, plan.noise, plan.batch_size, secret, facts)

    return step
