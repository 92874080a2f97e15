"""What a reader of a privacy report must be warned of, from public facts alone."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from skdpot.privacy.budget import PrivacyBudget
from skdpot.privacy.spent import PrivacySpent

__all__ = ["MEMBERS", "NOT_COVERED", "Caution", "cautions_of"]

_MOST_EPSILON = 10.0
# Records that a release may publish in the mean and still keep its δ.
_MOST_FAILURES = 0.1

MEMBERS = (
    "This report is not private: attacks in it were computed, without noise, from rows that the "
    "release was made from (X_members). Keep it to those who may see these rows; make another one "
    "without X_members for everybody else."
)

NOT_COVERED = (
    "Fits that are not in the history above: another fit on the same persons adds to what is known "
    "of them, also one that was thrown away, repeated, or made with other software. One "
    "PrivacyBudget for all of them counts and caps the sum.",
    "Choices made by looking at the data: a search over parameters (GridSearchCV) makes many "
    "fits, and its scores and its choice tell about the rows that it was scored on.",
    "Rows handed to predict, transform, score or distance: they count as public.",
    "Persons with more than one record, unless the assumptions say how many each may have.",
    "What is true of a whole group: somebody may learn from the release that smoking harms, and so "
    "something about you, whether or not your record was used.",
    "Security of the machine: who reads its memory or its disk needs no release.",
)


@dataclass(frozen=True)
class Caution:
    """One warning: "stop" where the release must not be trusted, and what to do."""

    level: Literal["stop", "caution"]
    text: str


def cautions_of(
    parts: Sequence[tuple[str, Any]],
    spent: PrivacySpent,
    budgets: Sequence[PrivacyBudget],
    *,
    n_samples: int | None,
    silent: Sequence[str] = (),
    of_members: bool = False,
) -> tuple[Caution, ...]:
    """List what is wrong or open with a release, the gravest first.

    `silent` are names of parts that learned from the rows and have no event; `of_members` says
    that the report was computed from rows that the release was made from.
    """
    found = [
        *_of_members(of_members),
        *map(_of_silence, silent),
        *_of_size(spent, n_samples, [name for name, _ in parts]),
        *_of_seeds(parts, spent),
        *_of_noise(spent),
        *_of_budgets(budgets, spent),
    ]
    return tuple(sorted(found, key=lambda caution: caution.level != "stop"))


def _of_members(of_members: bool) -> Iterator[Caution]:
    """Warn of the report itself."""
    if of_members:
        yield Caution("stop", MEMBERS)


def _of_silence(name: str) -> Caution:
    """Judge a part without an event."""
    if name == "FrozenEstimator":
        return Caution(
            "caution",
            "FrozenEstimator was fitted before: the guarantee holds only if the rows of that fit "
            "were public.",
        )
    return Caution(
        "stop",
        f"{name} was fitted on the rows without noise: no ε bounds what it, and every part "
        "after it, tell of them, and the ε stated here does not hold for the whole. Take a "
        "private estimator in its place (for a scaler, PrivateScaler), or fit it to public rows "
        "before. skdpot.check_pipeline refuses such a pipeline before the fit.",
    )


def _of_size(spent: PrivacySpent, n_samples: int | None, names: Sequence[str]) -> Iterator[Caution]:
    """Judge ε and δ."""
    if not spent.event.is_private:
        yield Caution(
            "stop",
            "No privacy: something was released without noise (ε = ∞). Do not publish it if the "
            "records are personal.",
        )
    elif math.isinf(spent.epsilon):
        yield Caution("stop", "No privacy: the noise is too small for any finite ε.")
    elif spent.epsilon > _MOST_EPSILON:
        yield Caution(
            "caution",
            f"ε = {spent.epsilon:.4g} is so large that the guarantee says little about a "
            "determined attacker. Values up to 1 are called strong, and up to 10 reasonable (N. "
            "Ponomareva et al., “How to DP-fy ML”, JAIR 2023).",
        )
    if math.isinf(spent.epsilon):
        return
    if n_samples is None:
        yield Caution(
            "caution",
            f"{' + '.join(names)} does not keep the number of records. Check that δ = "
            f"{spent.delta:g} is well below one over it.",
        )
    elif spent.delta * n_samples >= 1.0:
        yield Caution(
            "stop",
            f"δ = {spent.delta:g} is not below 1/n for n = {n_samples:,} records: with such a δ "
            "even the publication of one record, picked at random, would count as private. Choose "
            "a δ well below 1/n.",
        )
    elif spent.delta * n_samples > _MOST_FAILURES:
        yield Caution(
            "caution",
            f"δ = {spent.delta:g} is not far below 1/n for n = {n_samples:,} records: with such a "
            f"δ the publication of one record, picked at random, in {spent.delta * n_samples:.0%} "
            "of all releases would count as private. Choose a δ of less than a tenth of 1/n.",
        )


def _of_seeds(parts: Sequence[tuple[str, Any]], spent: PrivacySpent) -> Iterator[Caution]:
    """Judge who can repeat the noise; the seed itself is never shown."""
    seeded = any(getattr(part, "random_state", None) is not None for _, part in parts)
    if seeded or any("random_state" in text for text in spent.assumptions):
        yield Caution(
            "stop",
            "The noise can be repeated: random_state was set. Whoever knows or guesses it can "
            "subtract the noise. Fit again with random_state=None before publishing.",
        )


def _of_noise(spent: PrivacySpent) -> Iterator[Caution]:
    """Judge how the noise was drawn."""
    noisy = [part for part in spent.event.phases if hasattr(part, "sigma")]
    if any(getattr(part, "lattice", None) is None for part in noisy):
        yield Caution(
            "caution",
            "Noise was drawn as floating-point numbers (noise='float'). "
            "The proof is about real numbers, and the last bits of a noisy number "
            "can tell more; do not publish raw noisy numbers of this release with all digits.",
        )


def _of_budgets(budgets: Sequence[PrivacyBudget], spent: PrivacySpent) -> Iterator[Caution]:
    """Judge who counts the fits."""
    if not budgets and math.isfinite(spent.epsilon):
        yield Caution(
            "caution",
            "No budget counts the fits on these records. If fit was called more than once, or "
            "another private estimator saw the same persons, the true ε is larger than this one.",
        )
    if len(budgets) > 1:
        yield Caution(
            "caution",
            "Several budgets were charged: what they admit together is not capped by one.",
        )
    for budget in budgets:
        if math.isinf(budget.epsilon):
            yield Caution("caution", "The budget has no cap (ε = ∞): it admits every further fit.")
        if not budget.is_durable:
            yield Caution(
                "caution",
                "The ledger of the budget is a temporary file, which ends with its process: later "
                "fits will not be counted. Pass ledger='<path>' for a lasting one.",
            )
