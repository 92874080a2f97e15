"""One sketch of the rows of several parties, with little more noise than a sketch of one."""

import hashlib
import math
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass
from typing import Any

import numpy as np

from skdpot._utils.arguments import check_count
from skdpot._utils.streams import spawn_streams
from skdpot.exceptions import MessageError
from skdpot.privacy.noise import NOISE_REACH

_LARGEST_SUM = 2**62


@dataclass(frozen=True, eq=False)
class SecureSum:
    r"""Fit one sketch to the rows of several parties, whose messages are added unseen.

    Every party calls `fit` at the same time, with its own rows and the same sketch. Each draws a
    share of the noise, adds it to its exact counts, and hands both to `add`, a protocol for secure
    sums. The noise of the sum is that of one sketch of all rows, times :math:`\sqrt{k / (k - t)}`
    for k parties, t of which may share what they know. In a `SlicedSketch.merge` of k sketches it
    is :math:`\sqrt k` times that noise.

    Parameters
    ----------
    add : callable
        ``add(values, largest)`` returns the sum of the arrays that all parties pass to it. Values
        are int64 and secret, and `largest` is a bound on the absolute values of sums. It must
        reveal nothing but the sum, even to a coalition of `n_tolerated` parties and those who carry
        messages, and must raise an error unless all parties took part. :ref:`secure-sums` has one.
        skdpot has no cryptography.
    n_parties : int
        Number k of parties.
    n_tolerated : int, default=1
        Largest number t of parties that share what they know. Each reader of the sketch who is a
        party is one, since it can subtract its own noise: at least 1, and less than k.

    Raises
    ------
    TypeError, ValueError
        If a parameter is of the wrong type or out of range.

    Privacy
    -------
    Each party charges its own budget with the event of one sketch of all rows, before it counts or
    draws. The guarantee holds for parties that follow the protocol, against anyone who sees the
    sketch and up to t parties, and rests on `add`: what it leaks is not accounted for. The numbers
    of rows and the equality of plans are compared before the charge, and the former are public. The
    noise of the k - t others is a sum of discrete Gaussians, whose distance from one is proved in
    `skdpot.privacy.noise` and covered by the leak that every event of noise charges.

    See Also
    --------
    skdpot.SlicedSketch.merge : Adds sketches of parties that each add the whole noise.

    Examples
    --------
    Two parties of one process; `add` is not secure:

    >>> from concurrent.futures import ThreadPoolExecutor
    >>> from threading import Barrier
    >>> import numpy as np
    >>> from skdpot import SlicedSketch
    >>> from skdpot.federated import SecureSum
    >>> meeting, messages = Barrier(3), {}
    >>> def party(own):
    ...     def add(values, largest):
    ...         messages[own] = values
    ...         meeting.wait()
    ...         total = sum(messages.values())
    ...         meeting.wait()
    ...         return total
    ...     X = np.random.default_rng(own).uniform(size=(1000, 2))
    ...     sketch = SlicedSketch(epsilon=1.0, bounds=(0, 1), projections=np.eye(2))
    ...     return SecureSum(add, n_parties=3).fit(sketch, X)
    >>> with ThreadPoolExecutor() as pool:
    ...     sketches = list(pool.map(party, range(3)))
    >>> sketches[0].n_samples_, bool(np.all(sketches[0].cdf_ == sketches[2].cdf_))
    (3000, True)
    """

    add: Callable[[np.ndarray, int], Any]
    _: KW_ONLY
    n_parties: int
    n_tolerated: int = 1

    def __post_init__(self) -> None:
        """Check the parameters."""
        if not callable(self.add):
            raise TypeError("add must be a function of an array and the largest sum.")
        check_count(self.n_parties, "n_parties", least=2)
        check_count(self.n_tolerated, "n_tolerated", least=1, most=self.n_parties - 1)

    @property
    def n_shares(self) -> int:
        """Number of shares whose sum has the whole noise."""
        return self.n_parties - self.n_tolerated

    @property
    def assumptions(self) -> tuple[str, ...]:
        """Further assumptions of the statement of a fit."""
        return (
            f"at most {self.n_tolerated} of {self.n_parties} parties tell others what they know",
            "the protocol that adds their messages shows the sum alone",
        )

    def fit(self, sketch: Any, X: Any, y: Any = None) -> Any:
        """Fit a sketch to the rows of all parties.

        Parameters
        ----------
        sketch : SlicedSketch
            Equal for all parties, with declared bounds, an array of `projections` and
            ``random_state=None``. Only `budget` and `device` are each party's own.
        X : array-like of shape (n_samples, n_features), or a source
            Private rows of this party.
        y : array-like of shape (n_samples,), optional
            Their labels; ``conditional=True`` needs the parameter `classes`.

        Returns
        -------
        sketch : SlicedSketch
            The same closed sketch for all parties.

        Raises
        ------
        TypeError
            If `sketch` is no sketch.
        ValueError
            If sketch or rows are not usable. Nothing is charged.
        MessageError
            If a sum fails, or the parties do not fit the same sketch. What was charged before is
            spent, and nothing is released.
        BudgetExceededError
            If the budget of this party cannot pay. The others wait for it or fail, as `add` does.

        Privacy
        -------
        See the class.
        """
        if not hasattr(sketch, "merge"):
            raise TypeError(f"sketch must be a SlicedSketch, got {type(sketch).__name__}.")
        sketch._validate_params()
        if isinstance(sketch.projections, str) or not sketch._is_declared:
            raise ValueError(
                "The parties need the same public directions and bounds: pass an array as "
                "projections=, and bounds=(low, high) or norm_bound=."
            )
        if sketch.public_labels or (sketch.conditional and sketch.classes is None):
            raise ValueError("Labels of several parties are private: declare classes= alone.")
        if sketch.random_state is not None:
            raise ValueError(
                "random_state must be None: parties with equal seeds would draw equal shares of "
                "the noise, and each of them could subtract them all."
            )
        label = type(sketch).__name__
        streams = spawn_streams(None, label)
        return sketch._release(label, streams, X, y, parties=self)

    def rows(self, n_rows: int, classes: np.ndarray | None) -> int:
        """Return the number of rows of all parties, and refuse classes that differ."""
        return self._compared("classes", None if classes is None else classes.tolist(), n_rows)

    def largest(self, plan: Any, n_samples: int) -> int:
        """Return a bound on the sums of tables, in units of the lattice."""
        # No entry of a strategy matrix exceeds 1.
        noise = NOISE_REACH * plan.share * math.sqrt(self.n_parties)
        return math.ceil((n_samples + noise) / plan.lattice)

    def agree(self, plan: Any, n_samples: int) -> None:
        """Refuse, before any charge, plans that differ, or whose sums would not be exact."""
        if self.largest(plan, n_samples) > _LARGEST_SUM:
            raise ValueError(
                "The sums of all parties exceed 2^62 steps of the noise. Lower epsilon."
            )
        facts = (
            plan.directions.tobytes(),
            plan.bounds._key(),
            plan.strategy.n_bins,
            plan.strategy.energy,
            f"{plan.sigma:.9e}",  # machines may differ in the last digits
            plan.lattice,
            plan.n_shares,
        )
        self._compared("plans", facts)

    def _compared(self, name: str, facts: object, number: int = 0) -> int:
        """Return the sum of a number, and refuse facts that differ between parties."""
        fingerprint = int.from_bytes(hashlib.sha256(repr(facts).encode()).digest()[:4])
        fingerprints, total = self.total(np.array([fingerprint, number]), _LARGEST_SUM)
        if fingerprints != self.n_parties * fingerprint:
            raise MessageError(
                f"The parties would fit different sketches: their {name} differ. Give all the same "
                "parameters, columns and version of skdpot. Nothing was charged."
            )
        return int(total)

    def total(self, values: np.ndarray, largest: int) -> np.ndarray:
        """Return the sum over all parties, and refuse a sum that lacks a party."""
        message = np.append(values.ravel(), 1)
        problem = "what it returns is no array of integers within the bound"
        sums = np.array([])
        try:
            sums = np.asarray(self.add(message, largest))
        except Exception as error:  # its text may quote values
            problem = f"it raised {type(error).__name__}"
        fits = sums.dtype.kind == "i" and sums.shape == message.shape
        if not (fits and (sums <= largest).all() and (sums >= -largest).all()):
            raise MessageError(f"The secure sum failed: {problem}. Nothing was released.")
        if sums[-1] != self.n_parties:
            raise MessageError(f"The secure sum was not made by {self.n_parties} parties.")
        return sums[:-1].reshape(values.shape)
