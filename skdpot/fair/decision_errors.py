"""What a private classifier knows of the errors of its decisions, from its releases alone."""

from collections.abc import Iterable

import numpy as np

from skdpot.fair.fair_rule import FairConstraint, FairRule, least_ratio
from skdpot.fair.notions import NOTIONS
from skdpot.fair.score_law import ScoreLaw
from skdpot.fair.score_noise import ScoreSpread
from skdpot.privacy.reliability import OutputError, Reliability, named

# Errors that are good enough: of accuracies and probabilities, of rates, and of ratios of these.
_GOOD, _GOOD_RATE, _GOOD_RATIO = 0.05, 0.1, 0.2
_GOOD_OF_GROUP = 0.2  # error of the rate of a group, which the comparison of groups judges again
_STEEPEST = 0.25  # slope of a probability by its logit
ADVICE = (
    "Merge small groups, scale X to about [-1, 1], use more rows or fewer features, or take a "
    "larger epsilon."
)


def probability_errors(spread: ScoreSpread, *, shrunk: bool = True) -> list[OutputError]:
    """Return the error of predicted probabilities by a network that was trained with noise.

    Scores that are all noise have become constant if they were `shrunk`. Others are told from
    noise if their variance is larger than its own may be; their scale does not matter to decisions.
    """
    lost = not spread.kept.any() if shrunk else spread.hidden
    noise, signal = (spread.noise, 0.0 * spread.signal) if lost else (spread.error, spread.signal)
    return [
        OutputError(
            output="predicted probabilities",
            standard_error=min(_STEEPEST * float(noise.mean()) ** 0.5, 1.0),
            trivial="the same probability for all rows",
            trivial_error=min(_STEEPEST * float(signal.mean()) ** 0.5, 1.0),
            margin=_GOOD,
            replaced=shrunk and lost,
        )
    ]


def decision_errors(
    law: ScoreLaw,
    rule: FairRule,
    constraint: FairConstraint,
    classes: np.ndarray,
    groups: np.ndarray,
) -> list[OutputError]:
    """Return the errors of the accuracy, of how alike groups are, and of the rate of each group.

    `rule` is for the pools of the groups, and `law` has the groups themselves.
    """
    return [
        _of_accuracy(rule, classes),
        _of_fairness(rule, constraint),
        *_of_groups(law, rule, constraint, groups),
    ]


def _of_accuracy(rule: FairRule, classes: np.ndarray) -> OutputError:
    accuracy, error = rule.noisy_accuracy
    shares = rule.law.smoothed[..., 0].sum(axis=(0, 1)) / rule.law.sizes.sum()
    most = int(shares.argmax())
    return OutputError(
        output="accuracy",
        standard_error=error,
        trivial=f"the class {classes[most]}",
        trivial_error=max(accuracy - float(shares[most]), 0.0),
        estimate=accuracy,
        margin=_GOOD,
    )


def _of_fairness(rule: FairRule, constraint: FairConstraint) -> OutputError:
    rates, errors = rule.rates(constraint, sampling=False)
    by_ratio = constraint.measure == "ratio"
    if by_ratio:
        figure, error = least_ratio(rates, errors)
    else:
        gaps = rates.max(axis=1) - rates.min(axis=1)
        worst, rows = int(gaps.argmax()), np.arange(len(rates))
        both = np.hypot(errors[rows, rates.argmin(axis=1)], errors[rows, rates.argmax(axis=1)])
        figure, error = float(gaps[worst]), min(float(both[worst]), 1.0)
    return OutputError(
        output=NOTIONS[constraint.fairness].ratio_name if by_ratio else "difference of rates",
        standard_error=error,
        trivial="one decision for all",
        trivial_error=0.0,
        estimate=figure,
        margin=_GOOD_RATIO if by_ratio else _GOOD_RATE,
    )


def _of_groups(
    law: ScoreLaw, rule: FairRule, constraint: FairConstraint, groups: np.ndarray
) -> list[OutputError]:
    own, errors = FairRule(law, rule.weights).rates(constraint, sampling=False)
    pooled, _ = rule.rates(constraint, sampling=False)
    found = []
    for a, pool in enumerate(law.pools):
        members = [str(groups[b]) for b in np.flatnonzero(law.pools == pool)]
        alone, worst = len(members) == 1, int(errors[:, a].argmax())
        common = float(pooled[worst].mean() if alone else pooled[worst, pool])
        error, rate = float(errors[worst, a]), float(own[worst, a])
        found.append(
            OutputError(
                output=f"rate of group {groups[a]}",
                standard_error=error,
                trivial="the rate of all groups" if alone else f"that of {named(members)} together",
                trivial_error=max((rate - common) ** 2 - error**2, 0.0) ** 0.5,
                estimate=rate if alone else common,
                margin=_GOOD_OF_GROUP,
                replaced=not alone,
            )
        )
    return found


def as_reliability(outputs: Iterable[OutputError]) -> Reliability:
    """Return the errors with the advice for classifiers."""
    return Reliability(tuple(outputs), ADVICE)
