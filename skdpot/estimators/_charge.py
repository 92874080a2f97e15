"""Paying for training by noisy sums of gradients, and stating what was paid."""

from collections.abc import Iterable

from skdpot._utils.rng import Streams
from skdpot.nets.training_plan import TrainingPlan
from skdpot.privacy.budget import PrivacyBudget
from skdpot.privacy.data_bounds import DataBounds
from skdpot.privacy.spent import PrivacySpent, charge
from skdpot.slicing.declarations import assumptions as common_assumptions

__all__ = ["SINGLE_PRECISION", "charge_training"]

# Products of matrices may round the same record in another way in a batch of another size.
SINGLE_PRECISION = (
    "a record's gradient in single precision does not depend on the size of its batch"
)


def charge_training(
    budget: PrivacyBudget | None,
    plan: TrainingPlan,
    streams: Streams,
    *,
    epsilon: float,
    delta: float,
    sigma_given: bool,
    label: str,
    assumptions: Iterable[str],
    mechanism: str,
) -> PrivacySpent:
    """Charge a whole fit, before any noise is drawn or record looked at.

    Parameters
    ----------
    budget : PrivacyBudget or None
        Where to charge; None if the fit stands alone.
    plan : TrainingPlan
        What is charged, with its noise, sensitivity and bounds.
    streams : Streams
        Whether the noise is reproducible is part of the statement.
    epsilon, delta : float
        What the fit promises.
    sigma_given : bool
        Whether the caller fixed the noise: then the statement says what it costs at `delta`,
        whatever `epsilon` is.
    label : str
        Name of the estimator in the budget's history.
    assumptions : iterable of str
        What is taken to be public beside what always is (sizes, names, given bounds).
    mechanism : str
        How the release is made.

    Returns
    -------
    PrivacySpent
        To be stored as ``privacy_spent_``.

    Raises
    ------
    BudgetExceededError, CalibrationError, LedgerError, ValueError
        As `skdpot.privacy.spent.charge` does. Nothing is charged then.
    """
    public = plan.bounds if isinstance(plan.bounds, DataBounds) else None
    return charge(
        budget,
        plan.event,
        epsilon=None if sigma_given else epsilon,
        delta=delta,
        n_samples=plan.n_samples,
        label=label,
        assumptions=(*common_assumptions(None, public, streams), *assumptions),
        sigma=plan.sigma,
        sensitivity=plan.sensitivity,
        mechanism=mechanism,
    )
