"""Random streams, one per purpose: secret noise, public directions, post-processing."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np

from skdpot._utils.calls import current_call
from skdpot.exceptions import warn_of_privacy


class SecretStream:
    """Uniform random words from the operating system, or from a seed in tests."""

    def __init__(self, seed: int | None = None) -> None:
        self._generator = None if seed is None else np.random.default_rng(seed)

    @property
    def reproducible(self) -> bool:
        """Whether the stream was seeded."""
        return self._generator is not None

    def random_bytes(self, n_bytes: int) -> bytes:
        """Return `n_bytes` uniform random bytes."""
        if self._generator is None:
            return os.urandom(n_bytes)
        return self._generator.bytes(n_bytes)

    def random_uint64(self, size: int) -> np.ndarray:
        """Return `size` uniform random 64-bit words."""
        return np.frombuffer(self.random_bytes(8 * size), dtype=np.uint64).copy()

    def random_bits(self, n_bits: int) -> int:
        """Return a uniform integer in ``[0, 2 ** n_bits)``."""
        n_bytes = -(-n_bits // 8)
        word = int.from_bytes(self.random_bytes(n_bytes), "little")
        return word >> (8 * n_bytes - n_bits)

    def apart(self) -> "SecretStream":
        """Return an independent stream; draws from it do not change the draws of this one."""
        stream = SecretStream()
        stream._generator = None if self._generator is None else self._generator.spawn(1)[0]
        return stream

    def generator(self) -> np.random.Generator:
        """Return a numpy generator seeded from this stream (not cryptographic)."""
        return np.random.default_rng(self.random_bits(256))


@dataclass(frozen=True)
class Streams:
    """The streams of one fit: secret noise, public directions, and the solver."""

    secret: SecretStream
    public: np.random.Generator
    solver: np.random.Generator


def spawn_streams(random_state: int | np.random.RandomState | None, caller: str) -> Streams:
    """Split a scikit-learn ``random_state`` by purpose.

    A resumed fit repeats the public draws, and its noise is new. This holds with a seed too: if the
    rows have changed, the difference of two releases with the same noise would reveal the change.
    """
    call = current_call()
    resumed = None if call is None else call.resumed
    if random_state is None:
        public, solver = (None, None) if call is None else call.spawn().spawn(2)
        return Streams(SecretStream(), np.random.default_rng(public), np.random.default_rng(solver))
    warn_of_privacy(
        f"{caller}: `random_state` makes the privacy noise reproducible: anyone who knows it can "
        "remove the noise, and two fits with the same one differ by the data alone. Use it in "
        "tests only; leave random_state=None to publish."
    )
    seed = _seed_words(random_state)
    secret, public, solver = np.random.SeedSequence(seed).spawn(3)
    if resumed is not None:
        secret = np.random.SeedSequence([*seed, resumed])
    return Streams(
        SecretStream(int(secret.generate_state(4, np.uint64)[0])),
        np.random.default_rng(public),
        np.random.default_rng(solver),
    )


def solver_generator(random_state: int | np.random.RandomState | None) -> np.random.Generator:
    """Return a generator for post-processing; no privacy depends on it."""
    if random_state is None:
        call = current_call()
        return np.random.default_rng(None if call is None else call.spawn())
    return np.random.default_rng(_seed_words(random_state))


def _seed_words(random_state: int | np.random.RandomState) -> list[int]:
    """Draw four words of a seed from a `random_state` that is not None."""
    from sklearn.utils import check_random_state  # here, because its import takes a second

    words: list[int] = check_random_state(random_state).randint(0, 2**31, size=4).tolist()
    return words


@contextmanager
def torch_randomness(rng: np.random.Generator) -> Iterator[None]:
    """Seed torch's global generator from `rng` in the block, and restore it afterwards."""
    import torch

    with torch.random.fork_rng():
        torch.manual_seed(int(rng.integers(2**63 - 1)))
        yield
