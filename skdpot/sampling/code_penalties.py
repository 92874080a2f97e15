"""TODO: code_penalties."""

from dataclasses import KW_ONLY, dataclass
from numbers import Real
from typing import Any, ClassVar

from skdpot._utils.validation import Interval, StrOptions
from skdpot.base import COUNT, LENGTH, Mechanism
from skdpot.nets.cells import Cells
from skdpot.sampling.code_distances import ParityDistance, Prior, PriorDistance


@dataclass(eq=False, repr=False)
class CodePenalty(Mechanism):
    """What both penalties read: a squared sliced Wasserstein distance of codes, and its weight."""

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

    def distance(self, *, on_sphere: bool, cells: Cells, **sizes: Any) -> PriorDistance:
        """Return the distance to the uniform law on the sphere, or to the normal law."""
        prior: Prior = "sphere" if on_sphere else "normal"
        return PriorDistance(prior=prior, n_projections=self.n_projections, **sizes)


@dataclass(eq=False, repr=False)
class CodeParity(CodePenalty):
    """Penalty of an autoencoder: the mean distance of the codes of two groups.

    Codes then reveal little about the group of a row. Pass the groups as
    ``fit(X, sensitive_features=groups)``; with ranks a batch takes the same share of each group.

    Equalised odds [1]_ for codes is that code and group are independent given the class, so that a
    classifier of codes, whichever is trained later, has the same rates of errors in all groups. The
    penalty is then the mean over the classes of the distance of their members in two groups. Pass
    ``fit(X, classes, sensitive_features=groups)``; the class of each row is public then, as its
    group is.

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
        Whose codes are compared: of all members of two groups, or of those of the same class.

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

    def distance(self, *, on_sphere: bool, cells: Cells, **sizes: Any) -> ParityDistance:
        """Return the mean distance between groups."""
        radius = 1.0 if on_sphere else self.clip_output
        return ParityDistance(
            radius=radius, n_projections=self.n_projections, strata=cells.strata, **sizes
        )
