"""Events that touch secret samples of the records."""

from dataclasses import dataclass

from skdpot.privacy.event_base import (
    Event,
    lattice_spacing,
    positive_float,
    positive_int,
    positive_ints,
    sampled_step_mu,
    step_mu,
)
from skdpot.privacy.relation import Relation

__all__ = ["FixedSizeGaussianEvent", "PoissonGaussianEvent", "PoissonRowsGaussianEvent"]


@dataclass(frozen=True, kw_only=True)
class PoissonGaussianEvent(Event):
    """`n_steps` Gaussian releases, each on its own secret Poisson sample.

    In every step each record takes part with probability `sampling_rate`, independently of
    the other records and of all other steps, and nobody learns who took part.

    Parameters
    ----------
    sigma : float
        Standard deviation of the noise on every coordinate of the batch statistic.
    sensitivity : float
        L2 sensitivity of the batch statistic under `relation`. Under replace-one it is 2C for
        a sum of vectors clipped to norm C; without `clipped_sum` it must bound both what
        replacing a record of the batch does and what adding or removing one does.
    sampling_rate : float
        Probability in (0, 1] that a record takes part in a step.
    n_steps : int
        Number of steps.
    relation : Relation, default=Relation.REPLACE_ONE
        The neighbouring relation of `sensitivity`.
    clipped_sum : bool, default=False
        Under replace-one: the statistic is a sum, over the records of the batch, of one
        vector a record, and each moves the sum, rounded if there is a lattice, by at most
        ``sensitivity / 2``. This admits a tighter account.
    lattice : float or None, default=None
        Spacing of the lattice of discrete Gaussian noise; ``None`` is continuous noise.

    Raises
    ------
    ValueError
        If a field is out of range, or `clipped_sum` is set under another relation.
    """

    sigma: float
    sensitivity: float
    sampling_rate: float
    n_steps: int
    clipped_sum: bool = False
    lattice: float | None = None

    def __post_init__(self) -> None:
        """Check the fields and give them their plain Python types."""
        super().__post_init__()
        self._store("sigma", positive_float(self, "sigma", self.sigma))
        self._store("sensitivity", positive_float(self, "sensitivity", self.sensitivity))
        self._store("sampling_rate", positive_float(self, "sampling_rate", self.sampling_rate))
        self._store("n_steps", positive_int(self, "n_steps", self.n_steps))
        self._store("clipped_sum", bool(self.clipped_sum))
        self._store("lattice", lattice_spacing(self, self.lattice, self.sigma))
        sampled_step_mu(self.sigma, self.sensitivity, self.lattice)  # refuses coarse lattices
        _check_rate(self, self.sampling_rate)
        if self.clipped_sum and self.relation is not Relation.REPLACE_ONE:
            raise ValueError(
                "PoissonGaussianEvent: `clipped_sum` says that the sensitivity is twice the "
                f"clipping norm, which holds under replace-one only, not {str(self.relation)!r}."
            )

    @property
    def mu(self) -> float:
        """Privacy of one step on all records."""
        return sampled_step_mu(self.sigma, self.sensitivity, self.lattice)


@dataclass(frozen=True, kw_only=True)
class FixedSizeGaussianEvent(Event):
    """`n_steps` Gaussian releases, each on fresh subsets of fixed, public sizes.

    In every step, from each group j of ``group_sizes[j]`` records a uniformly random subset
    of ``batch_sizes[j]`` is drawn without replacement, independently of all other steps, and
    kept secret. An epoch of a shuffled data loader is not such a draw.

    Parameters
    ----------
    sigma : float
        Standard deviation of the noise on every coordinate of the batch statistic.
    sensitivity : float
        Replace-one L2 sensitivity of the statistic as a function of the *batch*.
    batch_sizes : tuple of int
        Records drawn from each group (one entry when there are no groups).
    group_sizes : tuple of int
        Records in each group.
    n_steps : int
        Number of steps.
    lattice : float or None, default=None
        Spacing of the lattice of discrete Gaussian noise; ``None`` is continuous noise.
    relation : Relation, default=Relation.REPLACE_ONE
        Only replace-one keeps the sizes public.

    Raises
    ------
    ValueError
        If a field is out of range, the sizes do not match, or the relation is another one.
    """

    sigma: float
    sensitivity: float
    batch_sizes: tuple[int, ...]
    group_sizes: tuple[int, ...]
    n_steps: int
    lattice: float | None = None

    def __post_init__(self) -> None:
        """Check the fields and give them their plain Python types."""
        super().__post_init__()
        self._store("sigma", positive_float(self, "sigma", self.sigma))
        self._store("sensitivity", positive_float(self, "sensitivity", self.sensitivity))
        self._store("batch_sizes", positive_ints(self, "batch_sizes", self.batch_sizes))
        self._store("group_sizes", positive_ints(self, "group_sizes", self.group_sizes))
        self._store("n_steps", positive_int(self, "n_steps", self.n_steps))
        self._store("lattice", lattice_spacing(self, self.lattice, self.sigma))
        if len(self.batch_sizes) != len(self.group_sizes):
            raise ValueError(
                "FixedSizeGaussianEvent: `batch_sizes` and `group_sizes` must have one entry a "
                f"group, got {len(self.batch_sizes)} and {len(self.group_sizes)} entries."
            )
        if any(b > n for b, n in zip(self.batch_sizes, self.group_sizes, strict=True)):
            raise ValueError(
                "FixedSizeGaussianEvent: `batch_sizes` must not exceed `group_sizes`, got "
                f"{self.batch_sizes} of {self.group_sizes}."
            )
        _check_replace_one(self, "batches of a fixed size make the group sizes public")

    @property
    def mu(self) -> float:
        """Privacy of one step on all records."""
        return step_mu(self.sigma, self.sensitivity, self.lattice)

    @property
    def sampling_rate(self) -> float:
        """The largest share of a group that one batch holds."""
        return max(b / n for b, n in zip(self.batch_sizes, self.group_sizes, strict=True))


@dataclass(frozen=True, kw_only=True)
class PoissonRowsGaussianEvent(Event):
    """`n_steps` Gaussian releases of one vector a record of a secret Poisson sample.

    In every step each record takes part with probability `sampling_rate`, independently of
    the other records and of all other steps. The release is one noisy vector a record, in
    uniformly random order or sorted after the noise, so that anyone can count the records of
    the sample; nobody learns which ones they were. This is *not* `PoissonGaussianEvent`, whose
    sample size stays hidden.

    Parameters
    ----------
    sigma : float
        Standard deviation of the noise on every coordinate.
    sensitivity : float
        Replace-one L2 sensitivity of the vectors as a function of the *batch*.
    sampling_rate : float
        Probability in (0, 1] that a record takes part in a step.
    n_samples : int
        Number of records.
    n_steps : int
        Number of steps.
    lattice : float or None, default=None
        Spacing of the lattice of discrete Gaussian noise; ``None`` is continuous noise.
    relation : Relation, default=Relation.REPLACE_ONE
        Only replace-one makes the number of records public.

    Raises
    ------
    ValueError
        If a field is out of range, or the relation is another one.
    """

    sigma: float
    sensitivity: float
    sampling_rate: float
    n_samples: int
    n_steps: int
    lattice: float | None = None

    def __post_init__(self) -> None:
        """Check the fields and give them their plain Python types."""
        super().__post_init__()
        self._store("sigma", positive_float(self, "sigma", self.sigma))
        self._store("sensitivity", positive_float(self, "sensitivity", self.sensitivity))
        self._store("sampling_rate", positive_float(self, "sampling_rate", self.sampling_rate))
        self._store("n_samples", positive_int(self, "n_samples", self.n_samples))
        self._store("n_steps", positive_int(self, "n_steps", self.n_steps))
        self._store("lattice", lattice_spacing(self, self.lattice, self.sigma))
        _check_rate(self, self.sampling_rate)
        _check_replace_one(self, "the sizes of the samples reveal the number of records")

    @property
    def mu(self) -> float:
        """Privacy of one step on all records."""
        return step_mu(self.sigma, self.sensitivity, self.lattice)


def _check_rate(owner: object, rate: float) -> None:
    if rate > 1.0:
        raise ValueError(
            f"{type(owner).__name__}: `sampling_rate` must lie in (0, 1], got {rate!r}."
        )


def _check_replace_one(owner: Event, reason: str) -> None:
    if owner.relation is not Relation.REPLACE_ONE:
        raise ValueError(
            f"{type(owner).__name__}: `relation` must be 'replace_one', got "
            f"{str(owner.relation)!r}; {reason}."
        )
