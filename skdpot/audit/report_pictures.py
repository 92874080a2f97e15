"""The pictures of a privacy report, as addresses that contain their data."""

import math
from typing import Any

import numpy as np
from matplotlib.figure import Figure as Picture
from scipy.stats import norm

from skdpot._utils.panels import COLORS, data_address
from skdpot.audit.report_words import claim_of
from skdpot.audit.synthetic_rows import SyntheticMembership
from skdpot.privacy.accounting import compose
from skdpot.privacy.statement import PrivacySpent

_ATTACK_AXES = {"xlabel": "share of others wrongly suspected", "ylabel": "share of members found"}


def claim_picture(spent: PrivacySpent) -> str:
    """Draw the attacks that a claim allows, as the data address of an SVG picture."""
    figure = Picture(figsize=(3.6, 3.4), layout="constrained")
    ax = figure.subplots()
    fpr = np.linspace(0, 1, 201)
    allowed = claim_of(spent).tpr_bound(fpr)
    ax.fill_between(fpr, fpr, allowed, color=COLORS[5], alpha=0.35, linewidth=0)
    ax.plot(fpr, allowed, color=COLORS[0], label="most that ε and δ allow")
    loss = compose(spent.event)
    if not loss.is_sampled and math.isfinite(loss.mu_without_sampling):
        best = loss.leak + (1.0 - loss.leak) * norm.cdf(norm.ppf(fpr) + loss.mu_without_sampling)
        ax.plot(fpr, best, color=COLORS[1], linestyle="--", label="most that the noise allows")
    ax.plot([0, 1], [0, 1], "k:", linewidth=1, label="blind guessing")
    ax.set(xlim=(0, 1), ylim=(0, 1), aspect="equal", **_ATTACK_AXES)
    ax.legend(loc="lower right", fontsize="small")
    return data_address(figure, "svg", "image/svg+xml")


def membership_picture(found: SyntheticMembership) -> str:
    """Draw the outcome of attacks on synthetic rows, as the data address of a PNG picture."""
    # No layout engine keeps the legend clear of axes with a fixed aspect.
    by_hand: Any = "none"  # matplotlib documents this value, and its stubs lack it
    figure = Picture(figsize=(7.2, 4.6), layout=by_hand)
    left, right = figure.subplots(1, 2)
    figure.subplots_adjust(left=0.09, right=0.98, top=0.94, bottom=0.28, wspace=0.3)
    for ax, log in ((left, False), (right, True)):
        found.plot(ax, log=log, legend=False).set(**_ATTACK_AXES)
    left.set_title("all attacks", fontsize="medium")
    right.set_title("small error rates", fontsize="medium")
    figure.legend(*left.get_legend_handles_labels(), loc="lower center", ncols=2, fontsize="small")
    # Curves of thousands of points are smaller as pixels.
    return data_address(figure, "png", "image/png")
