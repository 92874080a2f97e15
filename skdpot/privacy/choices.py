"""The event of choosing the candidate with the largest noisy score."""

import math
from dataclasses import dataclass, replace

from skdpot.privacy.events import Event, Step, Steps, count, positive

# pi^1.5 / (4 sqrt 3), rounded up: the mu of one choice with sigma 1 and sensitivity 1.
CHOICE_MU = 0.803721


@dataclass(frozen=True, kw_only=True)
class ChoiceEvent(Event):
    r"""Choices of the largest score by the exponential mechanism; the scores stay secret.

    A candidate is chosen with probability proportional to :math:`e^{\lambda q_i}`. This equals
    choosing the largest of the scores :math:`q_i` with independent Gumbel noise of standard
    deviation :math:`\sigma = \pi / (\sqrt 6 \lambda)` [1]_. Later choices may depend on earlier
    ones.

    Parameters
    ----------
    sigma : float
        Standard deviation of the noise on every score.
    sensitivity : float
        Largest *difference* between the changes of two scores when one record changes: the range
        :math:`\max_i (q_i - q'_i) - \min_i (q_i - q'_i)`, at most twice the change of one score.
    n_steps : int, default=1
        Number of choices.
    relation : Relation, default=Relation.REPLACE_ONE
        Neighbouring relation of `sensitivity`.
    label : str, default=""
        Short public description for reports.

    Notes
    -----
    With a range of :math:`\Delta` the logarithms of the likelihood ratios of all candidates lie in
    one interval of length :math:`\eta = \lambda \Delta` (bounded range [1]_), say
    :math:`[t - \eta, t]`. Let any test, randomised or not, reject with probabilities p and q under
    the two neighbours. Then :math:`p \le e^t q` and :math:`1 - p \ge e^{t - \eta} (1 - q)`, hence
    :math:`\mathrm{logit}(p) - \mathrm{logit}(q) \le \eta`. The derivative of
    :math:`\Phi^{-1}(p)` with respect to :math:`\mathrm{logit}(p)` is
    :math:`p (1 - p) / \varphi(\Phi^{-1}(p))`. It is largest at p = 1/2, where it is
    :math:`\sqrt{2 \pi} / 4`. So :math:`\Phi^{-1}(p) - \Phi^{-1}(q) \le \mu` with

    .. math:: \mu = \frac{\sqrt{2 \pi}}{4} \eta = \frac{\pi^{3/2}}{4 \sqrt 3}
              \frac{\Delta}{\sigma} < 0.8038 \frac{\Delta}{\sigma}

    for every test, which is the definition of :math:`\mu`-GDP. No smaller multiple of the range
    suffices: two candidates whose scores change by :math:`\pm \Delta / 2` attain it as
    :math:`\Delta / \sigma \to 0`.

    References
    ----------
    .. [1] D. Durfee, R. Rogers, "Practical differentially private top-k selection with
       pay-what-you-get composition", 2019.
    """

    sigma: float
    sensitivity: float
    n_steps: int = 1

    in_files = True
    _checks = {"sigma": positive, "sensitivity": positive, "n_steps": count}

    @property
    def mu(self) -> float:
        """All choices together are mu-GDP."""
        return math.sqrt(self.n_steps) * CHOICE_MU * self.sensitivity / self.sigma

    def _steps(self) -> Steps:
        yield Step(CHOICE_MU * self.sensitivity / self.sigma), self.n_steps

    def _grouped(self, group_size: int) -> Event:
        return replace(self, n_steps=group_size * self.n_steps)

    def _words(self) -> str:
        choices = f"{self.n_steps:,} choices" if self.n_steps > 1 else "1 choice"
        return self._of_one_record(
            f"{choices} by the largest of several noisy scores, which are not released: each has "
            f"Gumbel noise of standard deviation {self.sigma:.4g}, and replacing one record moves "
            f"one score against another by at most {self.sensitivity:.4g}."
        )
