"""Texts: a part of ``bench_distance.py``, as in appendix E.5.2 of the TriangleWad paper.

``--data`` is a folder of files, of which each holds the texts of one class, separated by lines with
a percent sign: the format of the Debian package ``fortunes``.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from scipy.spatial.distance import cdist
from sklearn.decomposition import TruncatedSVD
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.preprocessing import normalize

from skdpot import PrivateWassersteinDistance
from skdpot.distance.reconstruction import reconstruct, rows_from_sketch
from skdpot.exceptions import NotPrivateWarning, PrivacyWarning
from skdpot.mechanisms import FedWad, Sliced, Triangle
from skdpot.metrics import wasserstein_distance
from skdpot.ot.transport import sliced_distance

__all__ = ["text"]

N_CLASSES, N_TEXTS, N_WORDS, N_COMPONENTS = 3, 600, 300, 16


def text(seeds: int, data: Path) -> Iterator[dict[str, Any]]:
    """Yield distances between classes of texts, and the share of words that messages give away.

    The classes with most texts are private; the others make a public embedding: weighted counts of
    words without stop words, and their first singular vectors, with rows of norm 1.
    """
    texts = {path.name: _texts(path) for path in sorted(data.iterdir()) if path.is_file()}
    names = sorted(texts, key=lambda name: -len(texts[name]))[:N_CLASSES]
    public = [one for name, some in texts.items() if name not in names for one in some]
    count = TfidfVectorizer(stop_words="english", min_df=3).fit(public)
    reduce = TruncatedSVD(N_COMPONENTS, random_state=0).fit(count.transform(public))
    words = normalize(reduce.components_.T * reduce.singular_values_)
    for seed in range(seeds):
        rng = np.random.default_rng(seed)
        parties, known = {}, {}
        for name in names:
            order = rng.permutation(len(texts[name]))
            for half, part in (("", order[:N_TEXTS]), (" (others)", order[N_TEXTS : 2 * N_TEXTS])):
                counted = count.transform([texts[name][k] for k in part])
                parties[name + half] = normalize(reduce.transform(counted))
                known[name + half] = np.unique(counted.nonzero()[1])
        pairs = [(names[0], names[1]), (names[0], names[2]), (names[1], names[2])]
        for one, other in [*pairs, (names[0], f"{names[0]} (others)")]:
            for row in _distances(parties[one], parties[other]):
                yield {"seed": seed, "pair": f"{one}, {other}"} | row
        for row in _words_told(words, known[names[0]], known[names[1]], rng):
            yield {"seed": seed, "pair": f"words of {names[0]} and {names[1]}"} | row


def _texts(path: Path) -> list[str]:
    found = path.read_text(encoding="utf-8", errors="replace").split("\n%\n")
    return [one for one in found if len(re.findall(r"\w+", one)) >= 5]


def _distances(X: np.ndarray, Y: np.ndarray) -> Iterator[dict[str, Any]]:
    yield {"method": "exact W₂", "distance": wasserstein_distance(X, Y)}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NotPrivateWarning)
        warnings.simplefilter("ignore", PrivacyWarning)
        for name, protocol in (
            ("TriangleWad", Triangle(gamma_scale=0.1)),
            ("FedWad", FedWad(n_rounds=10)),
        ):
            found = PrivateWassersteinDistance(protocol).fit(X).distance(Y)
            yield {"method": name, "distance": found}
        for epsilon in (1.0, 3.0):
            sides = [PrivateWassersteinDistance(epsilon=epsilon, norm_bound=1.0) for _ in "ab"]
            first, second = (side.fit(rows) for side, rows in zip(sides, (X, Y), strict=True))
            estimate = first.compare(second)
            low, high = estimate.interval()
            yield {
                "method": f"sketch, ε = {epsilon:g}",
                "distance": estimate.distance,
                "low": low,
                "high": high,
                "exact SW₂": sliced_distance(X, Y, first.sketch_.directions_),
            }


def _words_told(
    words: np.ndarray, known: np.ndarray, others: np.ndarray, rng: np.random.Generator
) -> Iterator[dict[str, Any]]:
    """Yield the share of words read off a message that the party has, and that of all words."""
    X, Y = (words[rng.choice(each, N_WORDS, replace=False)] for each in (known, others))

    def told(points: np.ndarray) -> float:
        return float(np.isin(cdist(points, words).argmin(axis=1), known).mean())

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NotPrivateWarning)
        warnings.simplefilter("ignore", PrivacyWarning)
        fedwad = PrivateWassersteinDistance(FedWad(n_rounds=10)).fit(X).compare(Y)
        yield {"method": "FedWad, last ξ", "words": told(fedwad.details.reference.points)}
        for scale in (0.1, 1.0):
            triangle = PrivateWassersteinDistance(Triangle(gamma_scale=scale)).fit(Y)
            message, seen = triangle.publish(X), triangle.compare(X).transcript
            yield {"method": f"TriangleWad, γ {scale:g}", "words": told(message.points)}
            rows = reconstruct(seen, "server")["other party"].rows
            yield {"method": f"TriangleWad, γ {scale:g}, attacked", "words": told(rows)}
        sketch = PrivateWassersteinDistance(Sliced(), norm_bound=1.0).fit(X).sketch_
        yield {
            "method": "sketch, ε = 1",
            "words": told(rows_from_sketch(sketch, N_WORDS, rng).rows),
        }
    yield {"method": "all words", "words": len(known) / len(words)}
