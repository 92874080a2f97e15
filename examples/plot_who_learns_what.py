"""
Who learns what
===============

Two archives of handwritten digits, *North* and *South*, want to know how different their digits are
without showing them to anyone. Three protocols promise the Wasserstein distance between them. We
run all three and then attack them: what can the receivers of the messages reconstruct?

- TriangleWad (Li and Pang, 2024): each archive moves its digits a fraction t of the way towards a
  shared cloud γ of random points, and sends the result to a server.
- FedWad (Rakotomamonjy, Nadjahi and Ralaivola, 2024): for several rounds both archives move their
  digits towards a cloud ξ that the server places between them.
- A private sketch: each archive publishes noisy distribution functions of its digits along random
  directions, once.

The first two protocols hide the digits behind a secret optimal transport plan. The plan does not
stay secret: the attacks below recover it, and with it every digit.
"""

# %%
# Two archives and three protocols
# --------------------------------
# Pixels are scaled to [-1, 1]. A `Party` holds its rows, answers requests with messages, and takes
# part only in the protocols that its owner allows. Every message is recorded in a transcript; the
# attacks use only the transcript.

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits

from skdpot import SlicedSketch
from skdpot.audit import gaussian_audit
from skdpot.audit.canaries import CanaryPairs
from skdpot.distance.fedwad import fedwad
from skdpot.distance.messages import InterpolatingMeasure, SketchMessage, SketchRequest
from skdpot.distance.party import Party
from skdpot.distance.reconstruction import paired_differences, reconstruct, rows_from_sketch
from skdpot.distance.sliced import sliced
from skdpot.distance.triangle import triangle
from skdpot.metrics import wasserstein_distance
from skdpot.ot.measures import gaussian_reference

plt.style.use("skdpot.pictures")
digits = load_digits()
order = np.random.default_rng(0).permutation(len(digits.data))
X = digits.data[order] / 8 - 1
north, south, nobody = X[:600], X[600:1200], X[1200:]
# One image of each of seven digits, for the plots.
shown = [int(np.flatnonzero(digits.target[order[:600]] == k)[0]) for k in range(7)]

everything = ("triangle", "fedwad", "sliced")
parties = [
    Party(name, rows, allows=everything) for name, rows in (("North", north), ("South", south))
]

rng = np.random.default_rng(1)
gamma = gaussian_reference(len(north), 64, scale=5.0, rng=rng)
by_triangle = triangle(*parties, t=0.7, reference=gamma)
by_fedwad = fedwad(*parties, n_rounds=2, rng=rng)
request = SketchRequest.draw(64, n_projections=64, n_bins=16, bounds=(-1, 1), rng=rng)
by_sketch = sliced(*parties, request)

# %%
# TriangleWad: the server reads everything
# ----------------------------------------
# Here γ has five times the scale of the pixels, and the digits are moved 70 % of the way towards
# it, so that the messages look like noise. But the optimal plan between a message and γ equals the
# secret plan, and the server knows γ and t:

read_by_server = reconstruct(by_triangle.transcript, "server")
for name, rows in (("North", north), ("South", south)):
    found = read_by_server[name]
    print(f"{name}: {found.n_exact(rows)} of {len(rows)} rows, RMSE {found.rmse(rows):.1e}")

# %%
# FedWad: the other archive reads everything
# ------------------------------------------
# South never sees a message from North, only what the server computes from it. One round suffices.

read_by_south = reconstruct(by_fedwad.transcript, "South", is_first=False)["the other party"]
print(f"North's rows, read by South: {read_by_south.n_exact(north)} of {len(north)} rows")

# %%
# An attacker without γ and t
# ---------------------------
# An attacker who sees two TriangleWad messages can pair their rows. In each pair γ cancels, and the
# exact difference between a digit of North and a digit of South remains, up to the factor 1 - t.
# South, which knows its own digits, would recover those of North.

seen = by_triangle.transcript.seen_by("server")
sent = [seen.messages(InterpolatingMeasure, sender=name)[0] for name in ("North", "South")]
pairs = paired_differences(*sent, t=0.7)
print(f"{pairs.n_exact(north, south)} of {pairs.n_pairs} differences are exact")

# %%
# The sketch: a distance, and no digit
# ------------------------------------
# The sketch is a noisy table of counts, and (1, 1e-5)-differentially private. Anyone may search for
# rows with its distribution functions. These rows are not the digits of North: they are as close to
# digits that were in neither archive.

sketch = by_sketch.transcript.messages(SketchMessage, sender="North")[0].sketch
from_sketch = rows_from_sketch(sketch, 600, np.random.default_rng(2))
for name, rows in (("rows of North", north), ("rows in neither archive", nobody)):
    print(f"nearest to {name}: {from_sketch.row_errors(rows).mean():.4f} away on average")

# %%
# Side by side
# ------------
# The left column shows what North sends, the right column what others reconstruct.


def strip(rows, low=-1.0, high=1.0, margin=0.0):
    """Return images next to each other, as shades from 0 to 1."""
    images = np.clip((np.asarray(rows).reshape(-1, 8, 8) - low) / (high - low), 0, 1)
    return np.hstack([np.pad(image, 1, constant_values=margin) for image in images])


def show(ax, image, title, color="black", **options):
    """Draw a strip under a title."""
    options = {"cmap": "gray_r", "interpolation": "bilinear", "aspect": "auto"} | options
    ax.imshow(image, vmin=0, vmax=1, **options)
    ax.set_title(title, color=color, pad=3)
    ax.axis("off")


BROKEN, SAFE, OTHER = "C1", "C0", "C4"
position = np.argsort(pairs.first_rows)[shown]  # of the pairs of the digits that are shown
eta = by_triangle.transcript.messages(InterpolatingMeasure, sender="North")[0].points[shown]
moved = by_fedwad.transcript.messages(InterpolatingMeasure, sender="North")[0].points[shown]

figure, axes = plt.subplots(5, 2, figsize=(7, 5.4))
figure.get_layout_engine().set(w_pad=0.12, h_pad=0.06)
show(axes[0, 0], strip(north[shown]), "North's digits")
axes[0, 1].axis("off")
axes[0, 1].text(0, 0.4, "left: what North sends\nright: what its reader gets", va="center")
show(axes[1, 0], strip(eta, -9, 9), "TriangleWad sends")
found = strip(read_by_server["North"].rows[shown])
show(axes[1, 1], found, "the server: all 600, exactly", BROKEN)
show(axes[2, 0], strip(moved, -2, 2), "FedWad sends")
found = strip(read_by_south.rows[shown])
show(axes[2, 1], found, "South: all 600, exactly", BROKEN)
show(axes[3, 0], strip(eta, -9, 9), "TriangleWad, γ secret, sends")
found = strip(pairs.differences[position], -2, 2, margin=0.5)
show(axes[3, 1], found, "600 exact differences to South's", BROKEN, cmap="PuOr")
table = sketch.cdf_[0].T
show(axes[4, 0], table, "the sketch sends 64 noisy curves", cmap="Blues")
found = strip(from_sketch.rows[: len(shown)])
show(axes[4, 1], found, "anybody: none of North's", SAFE)
figure.suptitle("Two protocols give every digit away; the sketch gives none", x=0.01, ha="left")
figure.savefig("who_learns_what.png")
plt.show()

# %%
# The strongest attacker
# ----------------------
# An attacker who knows all digits of North but one, and has two candidates for it, learns no more
# than ε allows. We release many sketches of two archives that differ in one digit, apply the most
# powerful test between them, and plot its true positive rate against its false positive rate.

digit = CanaryPairs(first=north[:1], second=-north[:1])  # its negative: as different as can be
small = SlicedSketch(epsilon=1.0, bounds=(-1, 1), n_projections=16, n_bins=8)
game = gaussian_audit(small, north[1:100], canaries=digit, n_trials=250)
print(game)

figure, (left, right) = plt.subplots(1, 2, figsize=(8.4, 4))
game.plot(ax=left)
left.set_title("Who knows all other digits can hardly\ntell whether this one is there")
groups = {"digits of North": (north, SAFE), "digits in neither archive": (nobody, OTHER)}
for name, (rows, color) in groups.items():
    style = {"density": True, "histtype": "stepfilled", "alpha": 0.5, "color": color}
    right.hist(from_sketch.row_errors(rows), np.linspace(0, 0.8, 41), label=name, **style)
right.axvline(0, color=BROKEN, linewidth=3, label="other protocols")
right.set_title("The sketch leads no nearer to digits of\nNorth than to those of others")
right.set(xlabel="error of the nearest row (RMSE)")
right.set(xlim=(-0.02, 0.8), yticks=[])
right.legend(loc="upper left", bbox_to_anchor=(0.04, 1))
plt.show()

# %%
# The distances
# -------------
# Both archives hold digits from the same distribution. TriangleWad and FedWad estimate the distance
# W₂ between the two tables; with a γ wide enough to make messages look like noise, the estimate of
# TriangleWad is far too large. The sketch estimates the sliced distance SW₂ between the
# distributions that the tables are samples of, with an interval that accounts for the noise.

exact = wasserstein_distance(north, south)
print(f"W2: {exact:.2f}; TriangleWad: {by_triangle.distance:.2f}; FedWad: {by_fedwad.distance:.2f}")
low, high = by_sketch.interval()
print(
    f"SW2 from the sketches: {by_sketch.distance:.3f}, with 95 % confidence {low:.3f} to {high:.3f}"
)
