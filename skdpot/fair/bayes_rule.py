"""Private scores and one release of their distributions, from which every fair rule follows."""

import math
import warnings
from dataclasses import KW_ONLY, dataclass
from numbers import Real
from typing import Any, ClassVar, Protocol

import numpy as np

from skdpot._utils.parameters import Interval
from skdpot.base import FitContext, MechanismResult
from skdpot.exceptions import told_safely
from skdpot.fair.decision_errors import probability_errors
from skdpot.fair.group_scores import GroupScorePlan, plan_group_scores
from skdpot.fair.mechanism import FairMechanism, FairTask
from skdpot.fair.score_law import ScoreLaw
from skdpot.fair.score_lists import ScoreLists
from skdpot.fair.score_tables import plan_score_tables, release_score_tables
from skdpot.nets.cells import Cells
from skdpot.nets.output_tables import TableNoise
from skdpot.privacy.events import ComposedEvent, Event, NonPrivateEvent
from skdpot.privacy.reliability import Reliability
from skdpot.release.releases import Records


@dataclass(eq=False, repr=False)
class BayesRule(FairMechanism):
    r"""Private scores and a release of their distributions: the default of the fair classifier.

    A network is trained for the classes alone. If decisions may not use the group, a second one
    learns the probability of each group given the features, also with privacy. The scores of the
    records of each group and class are then counted once, with noise. The rates of every rule with
    thresholds for these scores follow from the counts, and so does the best rule for any
    constraint, at no further cost (`skdpot.fair.fair_rule`).

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
        self, context: FitContext, task: FairTask, rows: np.ndarray, targets: np.ndarray
    ) -> MechanismResult:
        """Plan, charge, and only then read the rows."""
        compared, cells = bool(task.cells.strata), task.cells
        mu, noise = context.divisible_mu, None
        if compared:
            noise = plan_score_tables(mu * math.sqrt(self.share))
            mu *= math.sqrt(1.0 - self.share)
        loss = "logistic" if task.compared.n_outputs == 1 else "softmax"
        networks = plan_group_scores(mu, self.posterior_share, task, rows.shape[1], loss)
        private = math.isfinite(context.target.epsilon)
        assumptions = context.assumptions(declared_bounds=False)
        spent = context.charge_event(
            _event_of_fit(networks, noise) if private else NonPrivateEvent(),
            len(rows),
            (*assumptions, *task.public, "the network's initial weights"),
            "noisy sums of clipped gradients of all records"
            + ", and noisy counts of their scores by group and class" * compared,
        )
        scores = networks.train(context, task, rows, targets)
        attributes: dict[str, Any] = {"threshold_": 0.5, "scores_": None, "score_law_": None}
        if noise is not None:
            n_classes = max(2, task.compared.n_outputs)
            shares = np.array(cells.sizes) / len(rows)
            lists = ScoreLists(shares, n_classes, task.group_aware)
            placed = attributes["scores_"] = PlacedScores(scores, lists)
            law = release_law(placed, cells, noise, (rows, targets), context)
            attributes["score_law_"] = law
        stated = () if scores.spread is None else probability_errors(scores.spread)
        return MechanismResult(
            scores.network,
            None,
            spent,
            attributes=attributes,
            reliability=Reliability(tuple(stated)),
        )


class Scores(Protocol):
    """Models that score rows, each by itself."""

    def probabilities(self, rows: Any, codes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the probability of each class and of each group.

        Parameters
        ----------
        rows : array-like of shape (n_rows, n_features)
            Rows to score.
        codes : ndarray of shape (n_rows,)
            Their groups, read only if scores may use them.

        Returns
        -------
        classes : ndarray of shape (n_rows, n_classes)
        groups : ndarray of shape (n_rows, n_groups)
        """


@dataclass(frozen=True, eq=False)
class PlacedScores:
    """Scores of rows, with the list and the margin that each row has by them."""

    scores: Scores
    lists: ScoreLists

    def __call__(self, rows: Any, codes: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return the probability of each class, lists and margins; `codes` are groups."""
        classes, groups = self.scores.probabilities(rows, codes)
        lists, margins = self.lists.place(classes, groups)
        return classes, lists, margins

    def counted(self, records: Records, codes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the margins of rows with classes, (n, 1), and the histogram of each."""
        _, lists, margins = self(records[0], codes)
        return margins[:, np.newaxis], self.lists.tables(lists, codes, np.asarray(records[1]))


def _event_of_fit(networks: GroupScorePlan, noise: TableNoise | None) -> Event:
    """Return the event of the networks and of the counts."""
    counts = () if noise is None else (noise.event,)
    return ComposedEvent(events=(*networks.events, *counts))


def release_law(
    placed: PlacedScores,
    cells: Cells,
    noise: TableNoise,
    records: tuple[Any, np.ndarray],
    context: FitContext,
) -> ScoreLaw:
    """Release the distributions of the scores of rows and classes; the caller has charged."""
    # A model of the caller may quote rows in its errors and warnings.
    with warnings.catch_warnings(action="ignore"), np.errstate(all="ignore"):
        margins, histograms = told_safely(context.caller, placed.counted, records, cells.codes)
    return release_score_tables(
        placed.lists, margins, histograms, cells, noise, context.streams.secret, placed.counted
    )
