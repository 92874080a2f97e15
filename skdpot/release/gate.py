"""The gate that every noisy value passes before it leaves a mechanism.

A mechanism wraps a noisy value in a `Release`, with its noise and its event, passes it to
`pass_gate`, and continues with the value that `pass_gate` returns. Usually that is the same value.

`record_releases` keeps every release, including those that no attribute stores, such as the
gradients of a training. A fit is charged for all of them, so an audit must see all of them:

>>> from skdpot.privacy.events import GaussianEvent
>>> from skdpot.release.releases import Release
>>> from skdpot.release.gate import pass_gate, record_releases, replay_releases
>>> from skdpot import PrivateScaler
>>> import numpy as np
>>> X = np.random.default_rng(0).normal(size=(5000, 2))
>>> with record_releases() as releases:
...     scaler = PrivateScaler(epsilon=5.0).fit(X)
>>> [release.kind for release in releases]
['histogram', 'histogram', 'histogram', 'histogram', 'histogram']

`replay_releases` returns the recorded values to the same function on other rows. A function that
depends on private rows through releases alone gives the same result, to the last bit:

>>> event = GaussianEvent(sigma=100.0, sensitivity=1.0)
>>> def positive(rows, n=len(X)):
...     noisy = (rows > 0).sum() + np.random.default_rng().normal(0, 100)
...     noisy = pass_gate(Release("count", noisy, sigma=100.0, event=event))
...     return min(noisy / n, 1)
>>> with record_releases() as releases:
...     share = positive(X)
>>> with replay_releases(releases):
...     bool(positive(X - 1) == share)
True

Only noisy values and public facts pass the gate, so the charge covers everything that is recorded.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import replace
from typing import Any, TypeAlias

from skdpot.exceptions import ReplayError
from skdpot.privacy.journal import current_journal, withholding
from skdpot.release.comparison import copied, first_difference, in_form_of, same_shape
from skdpot.release.kept import kept_value
from skdpot.release.releases import Release, public_facts

_Gate: TypeAlias = Callable[[Release, Any], Any]
_GATE: ContextVar[_Gate | None] = ContextVar("skdpot_gate", default=None)


class _Recorder:
    """Keeps each release and returns its value unchanged."""

    def __init__(self, forgetting: bool) -> None:
        self.releases: list[Release] = []
        self.forgetting = forgetting

    def __call__(self, release: Release, value: Any) -> Any:
        self.releases.append(release)
        return value


class _Player:
    """Replaces each released value by the recorded one."""

    def __init__(self, releases: Sequence[Release]) -> None:
        self._due = list(releases)
        self._place = 0

    def __call__(self, release: Release, value: Any) -> Any:
        name = f"{release.kind!r}, release number {self._place}"
        if self._place == len(self._due):
            raise ReplayError(f"More is released than was recorded: {name}.")
        recorded = self._due[self._place]
        if release.kind != recorded.kind:
            raise ReplayError(f"{recorded.kind!r} was recorded in the place of {name}.")
        if not same_shape(recorded.value, release.value):
            raise ReplayError(f"The shape of {name}, differs from the recorded one.")
        different = first_difference(public_facts(recorded), public_facts(release))
        if different is not None:
            raise ReplayError(f"A fact of {name}, differs from the recorded one: {different}.")
        self._place += 1
        return in_form_of(recorded.value, value)

    def finish(self) -> None:
        if self._place < len(self._due):
            missing = self._due[self._place].kind
            raise ReplayError(f"Less was released than recorded: {missing!r} is missing.")


@contextmanager
def record_releases(*, forgetting: bool = True) -> Iterator[list[Release]]:
    """Record everything that mechanisms release inside the block."""
    recorder = _Recorder(forgetting)
    token = _GATE.set(recorder)
    try:
        yield recorder.releases
    finally:
        _GATE.reset(token)


@contextmanager
def replay_releases(releases: Sequence[Release]) -> Iterator[None]:
    """Return the recorded values for what mechanisms release inside the block."""
    player = _Player(releases)
    token = _GATE.set(player)
    try:
        yield
        player.finish()
    finally:
        _GATE.reset(token)


def pass_gate(release: Release) -> Any:
    """Let a noisy value out. The caller must continue with the returned value.

    Parameters
    ----------
    release : Release
        Its facts are copied only while releases are recorded or replayed.

    Returns
    -------
    object
        The value of the release, or the recorded one in a replay.

    Raises
    ------
    RuntimeError
        If the charged event has noise and the release has none.
    LedgerError
        If the release of a resumed fit has other public facts than the one that was kept, or
        another process has resumed the fit.
    """
    least = release.sigma if isinstance(release.sigma, float) else min(release.sigma, default=1.0)
    if least <= 0.0 and release.event.is_private:
        raise RuntimeError(f"{release.kind!r} would be released without the noise of its event.")
    journal = current_journal()
    if journal is not None:
        release = replace(release, value=kept_value(journal, release))
    gate = _GATE.get()
    if gate is None:
        return release.value
    facts = {name: copied(fact) for name, fact in release.facts.items()}
    return gate(replace(release, value=copied(release.value), facts=facts), release.value)


@contextmanager
def forgotten() -> Iterator[list[Release]]:
    """Leave the releases of the block out of the recording and of the ledger; yield them."""
    gate, kept = _GATE.get(), list[Release]()
    start = len(gate.releases) if isinstance(gate, _Recorder) else 0
    try:
        with withholding():
            yield kept
    finally:
        if isinstance(gate, _Recorder):
            kept += gate.releases[start:]
            if gate.forgetting:
                del gate.releases[start:]


def remember(releases: Sequence[Release]) -> None:
    """Add releases that `forgotten` has removed to the recording again."""
    gate = _GATE.get()
    if isinstance(gate, _Recorder) and gate.forgetting:
        gate.releases += releases
