"""Private scores, and a release that says what every fair rule for them achieves."""

import math
import warnings
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from functools import partial
from numbers import Real
from typing import Any, ClassVar

import numpy as np

from skdpot._utils.validation import Interval
from skdpot.exceptions import told_safely
from skdpot.mechanisms.base import FitContext, Released
from skdpot.mechanisms.fair import FairMechanism, FairTask, warn_of_small_cells
from skdpot.mechanisms.group_scores import plan_group_scores
from skdpot.privacy.events import ComposedEvent, NonPrivateEvent
from skdpot.release.output_tables import Cells
from skdpot.release.release import Records, of_candidates
from skdpot.release.score_tables import (
    ScoreLaw,
    ScoreLists,
    ScoreNoise,
    plan_score_tables,
    release_score_tables,
)


@dataclass(frozen=True, eq=False)
class PlacedScores:
    """Scores of rows, and where they lie."""

    of: Any  # with `probabilities` of rows and groups
    lists: ScoreLists

    def __call__(self, rows: Any, codes: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return the probability of each class, lists and margins; `codes` are of the groups."""
        classes, groups = self.of.probabilities(rows, codes)
        return classes, *self.lists.place(classes, groups)

    def counted(
        self, cells: np.ndarray, records: Records, shares: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return the margin of records, (n, 1), and the histogram that each of them is in."""
        codes = of_candidates(cells, shares)
        _, lists, margins = self(records[0], codes)
        return margins[:, None], self.lists.tables(lists, codes, np.asarray(records[1]))


@dataclass(eq=False, repr=False)
class BayesRule(FairMechanism):
    r"""Private scores and a release of their distributions: the default of the fair classifier.

    A network is trained for the classes alone. Where decisions may not use the group, a second one
    learns the probability of each group given the features, with privacy too. Then it is counted,
    once and with noise, how many records of each group and class have which scores. Every rule with
    thresholds for these scores has known rates from there on, and the best one for any constraint
    follows at no cost (`skdpot.mechanisms.fair_rules`).

    Parameters
    ----------
    share : float, default=0.3
        Share of the squared mu for the distributions of the scores.
    posterior_share : float, default=0.2
        Share of the rest for the probabilities of the groups, where decisions may not use them.

    References
    ----------
    As in `skdpot.FairPrivateClassifier`.
    """

    share: float = 0.3
    _: KW_ONLY
    posterior_share: float = 0.2

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        "share": [Interval(Real, 0, 1, closed="neither")],
        "posterior_share": [Interval(Real, 0, 1, closed="neither")],
    }

    def release(
        self,
        context: FitContext,
        task: FairTask,
        rows: np.ndarray,
        targets: np.ndarray,
        public: Sequence[str],
        callbacks: Sequence[Any] | None,
    ) -> Released:
        """Plan, charge, and only then read the rows."""
        compared, cells = bool(task.cells.strata), task.cells
        mu, noise = context.divisible_mu, None
        if compared:
            noise = plan_score_tables(mu * math.sqrt(self.share))
            mu *= math.sqrt(1.0 - self.share)
            error = noise.sigma * noise.strategy.typical_deviation
            warn_of_small_cells(context.caller, cells, error)
        loss = "logistic" if task.compared.n_outputs == 1 else "softmax"
        plan = plan_group_scores(mu, self.posterior_share, task, rows.shape[1], loss)
        events = (*plan.events, *([] if noise is None else [noise.event]))
        private = math.isfinite(context.target.epsilon)
        facts = context.assumptions(declared_bounds=False)
        spent = context.charge_event(
            ComposedEvent(events=events) if private else NonPrivateEvent(),
            len(rows),
            (*facts, *public, "the network's initial weights"),
            "noisy sums of clipped gradients of all records"
            + ", and noisy counts of their scores by group and class" * compared,
        )
        of = plan.train(context, task, rows, targets, callbacks)
        found: dict[str, Any] = {"threshold_": 0.5, "scores_": None, "score_law_": None}
        if noise is not None:
            n_classes = max(2, task.compared.n_outputs)
            shares = np.array(cells.sizes) / len(rows)
            placed = found["scores_"] = PlacedScores(
                of, ScoreLists(shares, n_classes, task.group_aware)
            )
            found["score_law_"] = release_law(placed, cells, noise, (rows, targets), context)
        return Released(of.network, None, spent, attributes=found)


def release_law(
    placed: PlacedScores,
    cells: Cells,
    noise: ScoreNoise,
    records: tuple[Any, np.ndarray],
    context: FitContext,
) -> ScoreLaw:
    """Release where the scores of rows and classes lie; the caller has charged the noise."""
    of = partial(placed.counted, cells.codes)
    # A model of the caller's own may quote rows in its errors and warnings.
    with warnings.catch_warnings(action="ignore"), np.errstate(all="ignore"):
        own = told_safely(context.caller, of, records, np.ones(len(cells.codes)))
    sizes = np.array(cells.sizes)
    return release_score_tables(placed.lists, own, sizes, noise, context.streams.secret, of)
