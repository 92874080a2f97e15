"""Splits of rows for fits that share a budget."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.model_selection import BaseCrossValidator
from sklearn.utils import check_random_state

from skdpot._utils.arguments import check_count
from skdpot._utils.arrays import IntArray
from skdpot._utils.streams import SecretStream
from skdpot.release.contributions import read_persons

__all__ = ["PersonKFold"]


class PersonKFold(BaseCrossValidator):
    r"""Random folds of persons, for fits that share a budget.

    All rows of a person are in one fold. Pass it as `cv` to any search or cross-validation of
    scikit-learn, with the person of each row as `groups`. Where everybody has one row, use
    ``KFold(shuffle=True, random_state=...)`` of scikit-learn.

    Parameters
    ----------
    n_splits : int, default=5
        Number of folds, at least 2.
    random_state : int, RandomState instance or None, default=None
        With None every call of `split` draws folds from the operating system's entropy. With a
        seed they can be repeated, and the *set* of persons is then assumed to be public.

    Raises
    ------
    ValueError
        By `split`: if `groups` is missing or has a missing value, or names fewer persons than there
        are folds.

    Privacy
    -------
    Splitting releases nothing, but the positions of the folds tell whose rows are in which: keep
    them, unless the set of persons is public. The number of persons is public.

    Notes
    -----
    Neighbours replace all rows of one person by any rows of another. **Claim**: fits with `groups`
    on these folds are together as private as their charges say, also of persons with unequal
    numbers of rows.

    *Proof.* Each person draws a random number of its own, and its rank among n persons decides the
    fold, so that the numbers of persons per fold depend on the public n alone. Let person p of the
    data be replaced by q. Give q the random number of p, and all others their own. Then no rank
    changes, and every fit gets two tables that differ in one person, p or q, or in none, of equally
    many persons. So the charges hold for each outcome of the random numbers, which has the same
    probability for both. A divergence of two mixtures with the same shares is at most the largest
    of their parts (joint convexity), and the claim follows.

    The folds must be random *and secret*. No public rule divides persons into folds of public
    sizes such that nobody else moves when one person is replaced: with two folds of one person
    each, let a be in the first and b in the second. Replace b by c, then a by b: c stays in the
    second. Replace a by c instead: c is in the first, with the same two persons. If nobody joins or
    leaves, that is, if neighbours only change the rows of a person who is known to take part,
    nobody else moves for any seed, and the folds may be published.

    `GroupKFold` of scikit-learn balances the folds by numbers of rows, so that one person's number
    of rows moves others. With ``shuffle=True`` a seed deals places by the order of the names: a
    person with another name moves most of the others.

    Examples
    --------
    >>> import numpy as np
    >>> from skdpot.model_selection import PersonKFold
    >>> persons = np.repeat(np.arange(10), 3)
    >>> [len(test) for _, test in PersonKFold(5).split(persons, groups=persons)]
    [6, 6, 6, 6, 6]
    """

    keeps_persons_apart = True  # read by `check_search`; the class has the proof
    __metadata_request__split = {"groups": True}

    def __init__(
        self, n_splits: int = 5, *, random_state: int | np.random.RandomState | None = None
    ) -> None:
        self.n_splits = n_splits
        self.random_state = random_state

    def get_n_splits(self, X: Any = None, y: Any = None, groups: Any = None) -> int:
        """Return the number of folds.

        Parameters
        ----------
        X, y, groups : object
            Not used.

        Returns
        -------
        int
            `n_splits`.
        """
        return self.n_splits

    def _iter_test_indices(self, X: Any = None, y: Any = None, groups: Any = None) -> Iterator[Any]:
        n_splits = check_count(self.n_splits, "n_splits", least=2)
        if groups is None:
            raise ValueError(
                "PersonKFold needs `groups`, the person of each row. Where each person has one "
                "row, use sklearn.model_selection.KFold(shuffle=True)."
            )
        persons = read_persons(groups, "groups", len(groups), fewest=1)
        n_persons = int(persons.max()) + 1
        if n_splits > n_persons:
            raise ValueError(f"n_splits={n_splits} is more than the {n_persons} persons in groups.")
        seed = self.random_state
        if seed is not None:
            seed = int(check_random_state(seed).randint(2**31))
        folds = _folds_of_persons(persons, n_splits, SecretStream(seed))
        for fold in range(n_splits):
            yield np.flatnonzero(folds[persons] == fold)


def _folds_of_persons(persons: IntArray, n_splits: int, stream: SecretStream) -> IntArray:
    """Return the fold of each person, from the rank of a random number of the person."""
    numbers = stream.random_uint64(int(persons.max()) + 1)
    return _ranks(numbers) % n_splits


def _ranks(numbers: npt.NDArray[np.uint64]) -> IntArray:
    """Return the rank of each number."""
    return numbers.argsort().argsort()
