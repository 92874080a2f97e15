"""Penalties of the codes of an autoencoder, as parameters: towards a prior, or between groups."""

from abc import ABC, abstractmethod
from dataclasses import KW_ONLY, dataclass
from numbers import Real
from typing import Any, ClassVar

from sklearn.base import BaseEstimator

from skdpot._utils.labels import encode_labels
from skdpot._utils.parameters import Interval, StrOptions
from skdpot.base import COUNT, LENGTH
from skdpot.nets.cells import SAME_CLASS, SAME_GROUP, Cells, one_cell, read_groups, within_classes
from skdpot.sampling.code_distances import CodeDistance, ParityDistance, PriorDistance


@dataclass(eq=False, repr=False)
class CodePenalty(BaseEstimator, ABC):
    """A squared sliced Wasserstein distance of codes with its weight, and how it is compared."""

    alpha: float = 0.1
    _: KW_ONLY
    comparison: str = "sketch"
    n_releases: int = 20
    n_projections: int = 50
    clip_jacobian: float = 1.0

    needs_groups: ClassVar[bool] = False

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        "alpha": [Interval(Real, 0, 1, closed="left")],
        "comparison": [StrOptions({"sketch", "ranks"})],
        "n_releases": [COUNT],
        "n_projections": [COUNT],
        "clip_jacobian": [LENGTH],
    }

    def cells(self, n_rows: int, groups: Any, classes: Any) -> tuple[Cells, tuple[str, ...]]:
        """Return the public cells that are compared, by default one, and what they make public."""
        return one_cell(n_rows), ()

    @abstractmethod
    def distance(
        self, *, on_sphere: bool, cells: Cells, latent_dim: int, batch_sizes: tuple[int, ...]
    ) -> CodeDistance:
        """Return the distance of codes of length `latent_dim`.

        Parameters
        ----------
        on_sphere : bool
            Whether codes have norm 1.
        cells : Cells
            The groups of the rows, or one cell.
        latent_dim : int
            Length of a code.
        batch_sizes : tuple of int
            Number of codes of each cell in a batch.
        """


class PriorPenalty(CodePenalty):
    """Penalty of an autoencoder: the distance of a batch of codes to the prior of `sample`.

    Parameters
    ----------
    alpha : float, default=0.1
        Weight of the squared sliced Wasserstein distance in [0, 1); the reconstruction error has
        the rest.
    comparison : {"sketch", "ranks"}, default="sketch"
        "sketch": the distributions of all codes are released `n_releases` times during training.
        In between the penalty is a sum over records, clipped to the norm of the gradient of the
        reconstruction error. "ranks", as in the paper: the codes of a batch are ranked, and one
        record moves the ranks of others, which needs more noise.
    n_releases : int, default=20
        Number of releases with "sketch", 10 % of the squared mu together.
    n_projections : int, default=50
        Directions per step, rounded up to a multiple of the length of a code.
    clip_jacobian : float, default=1.0
        Largest spectral norm L of the Jacobian of a record's code, for "ranks".
    """

    def distance(
        self, *, on_sphere: bool, cells: Cells, latent_dim: int, batch_sizes: tuple[int, ...]
    ) -> PriorDistance:
        """Return the distance to the uniform law on the sphere, or to the normal law."""
        return PriorDistance(
            prior="sphere" if on_sphere else "normal",
            latent_dim=latent_dim,
            batch_sizes=batch_sizes,
            n_projections=self.n_projections,
        )


@dataclass(eq=False, repr=False)
class CodeParity(CodePenalty):
    """Penalty of an autoencoder: the mean distance of the codes of two groups.

    Codes then reveal little about the group of a row. Pass the groups as
    ``fit(X, sensitive_features=groups)``; with ranks a batch takes the same share of each group.

    Equalised odds [1]_ for codes means that code and group are independent given the class. Any
    classifier of codes then has the same error rates in all groups. The penalty is the mean over
    classes of the distance between their members in two groups. Pass
    ``fit(X, classes, sensitive_features=groups)``; class and group of each row are then public.

    Parameters
    ----------
    alpha : float, default=0.1
        Weight of the squared sliced Wasserstein distance in [0, 1); the reconstruction error has
        the rest.
    comparison : {"sketch", "ranks"}, default="sketch"
        "sketch": the distributions of all codes are released `n_releases` times during training.
        In between the penalty is a sum over records, clipped to the norm of the gradient of the
        reconstruction error. "ranks", as in the paper: the codes of a batch are ranked, and one
        record moves the ranks of others, which needs more noise.
    n_releases : int, default=20
        Number of releases with "sketch", 10 % of the squared mu together.
    n_projections : int, default=50
        Directions per step, rounded up to a multiple of the length of a code.
    clip_jacobian : float, default=1.0
        Largest spectral norm L of the Jacobian of a record's code, for "ranks".
    clip_output : float, default=2.0
        Largest norm M of a code when groups are compared; longer ones count as shortened to it.
        The noise that the penalty needs is proportional to it. Not used for normalised codes,
        whose norm is 1.
    fairness : {"demographic_parity", "equalized_odds"}, default="demographic_parity"
        Which codes are compared: of all members of two groups, or of those of the same class.

    References
    ----------
    .. [1] M. Hardt, E. Price, N. Srebro, "Equality of opportunity in supervised learning", NeurIPS
       2016, definition 2.1, with the code in the place of the prediction.
    """

    _: KW_ONLY
    clip_output: float = 2.0
    fairness: str = "demographic_parity"

    needs_groups = True

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        **CodePenalty._parameter_constraints,
        "clip_output": [LENGTH],
        "fairness": [StrOptions({"demographic_parity", "equalized_odds"})],
    }

    def cells(self, n_rows: int, groups: Any, classes: Any) -> tuple[Cells, tuple[str, ...]]:
        """Return the groups, or the groups within classes."""
        cells, _ = read_groups(groups, n_rows, needed_by='penalty="parity"')
        if self.fairness == "demographic_parity":
            return cells, (SAME_GROUP,)
        needed_by = 'CodeParity(fairness="equalized_odds")'
        codes, labels = encode_labels(classes, n_rows, needed_by=needed_by)
        return within_classes(cells, codes, labels), (SAME_GROUP, SAME_CLASS)

    def distance(
        self, *, on_sphere: bool, cells: Cells, latent_dim: int, batch_sizes: tuple[int, ...]
    ) -> ParityDistance:
        """Return the mean distance between groups, or between their members of a class."""
        return ParityDistance(
            latent_dim=latent_dim,
            batch_sizes=batch_sizes,
            n_projections=self.n_projections,
            clip_output=1.0 if on_sphere else self.clip_output,
            strata=cells.strata,
        )
