"""Lists of scores: how records are divided before their scores are counted.

The most accurate fair rule looks at two things: how much more probable one class is than another,
and how probable each group is. A *list* is a pair of classes with a group, or, if decisions may not
use the group, a range of the group's predicted probability. A record is in the list of its two most
probable classes. Its *margin* is the difference of their probabilities.
"""

from dataclasses import dataclass
from functools import cached_property
from itertools import combinations

import numpy as np

_STRENGTHS = 2  # ranges of the probability of a group, if decisions may not use it
_TINY = 1e-9  # share of other groups, so that they may be empty


@dataclass(frozen=True, eq=False)
class ScoreLists:
    """The division of records into lists, by public facts and by what a rule may look at."""

    shares: np.ndarray  # of the groups, which are public
    n_classes: int
    group_aware: bool

    @cached_property
    def pairs(self) -> np.ndarray:
        """Pairs of classes, (n_pairs, 2)."""
        return np.array(list(combinations(range(self.n_classes), 2)))

    @property
    def n_places(self) -> int:
        """Number of lists for one pair of classes."""
        return len(self.shares) * (1 if self.group_aware else _STRENGTHS)

    @property
    def n_lists(self) -> int:
        """Number of lists: a place and a pair of classes each."""
        return self.n_places * len(self.pairs)

    @cached_property
    def decides(self) -> np.ndarray:
        """The two classes between which each list decides, (n_lists, 2)."""
        return np.tile(self.pairs, (self.n_places, 1))

    @cached_property
    def holds(self) -> np.ndarray:
        """Whether a list can hold records of a group, (n_lists, n_groups)."""
        n_groups = len(self.shares)
        if not self.group_aware:
            return np.ones((self.n_lists, n_groups), dtype=bool)
        return np.repeat(np.eye(n_groups, dtype=bool), len(self.pairs), axis=0)

    def place(self, classes: np.ndarray, groups: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the list and the margin of rows, from probabilities of classes and of groups."""
        rows = np.arange(len(classes))
        if self.group_aware:
            place = groups.argmax(axis=1)
        else:
            top = (groups / self.shares).argmax(axis=1)
            share = self.shares[top]
            above = (groups[rows, top] - share) / np.maximum(1.0 - share, _TINY)
            strength = np.clip(np.floor(above * _STRENGTHS), 0, _STRENGTHS - 1)
            place = top * _STRENGTHS + strength.astype(np.intp)
        best = np.sort(np.argsort(-classes, axis=1, kind="stable")[:, :2], axis=1)
        numbers = np.zeros((self.n_classes, self.n_classes), dtype=np.intp)
        numbers[tuple(self.pairs.T)] = np.arange(len(self.pairs))
        margin = classes[rows, best[:, 1]] - classes[rows, best[:, 0]]
        return place * len(self.pairs) + numbers[tuple(best.T)], np.clip(margin, -1.0, 1.0)

    @property
    def _groups_apart(self) -> int:
        return 1 if self.group_aware else len(self.shares)

    @property
    def n_tables(self) -> int:
        """Number of histograms: one per list, group that the list can hold, and class."""
        return self.n_lists * self._groups_apart * self.n_classes

    def tables(self, lists: np.ndarray, groups: np.ndarray, classes: np.ndarray) -> np.ndarray:
        """Return the histogram that each record is in."""
        apart = lists if self.group_aware else lists * len(self.shares) + groups
        return apart * self.n_classes + classes

    def by_group(self, counts: np.ndarray) -> np.ndarray:
        """Return the counts of histograms by list, group and class; 0 where there is none."""
        counts = counts.reshape(self.n_lists, self._groups_apart, self.n_classes, -1)
        return np.where(self.holds[:, :, None, None], counts, 0.0)
