"""Pictures of a privacy report, as text that goes into the page itself."""

import math

import numpy as np
from matplotlib.figure import Figure
from scipy.stats import norm

from skdpot.audit.membership.synthetic import SyntheticMembership
from skdpot.audit.report.words import claim_of
from skdpot.metrics._panels import COLORS, data_address
from skdpot.privacy.accounting import compose
from skdpot.privacy.spent import PrivacySpent

__all__ = ["claim_picture", "membership_picture"]


def claim_picture(spent: PrivacySpent) -> str:
    """Draw which attacks a claim leaves possible.

    Parameters
    ----------
    spent : PrivacySpent
        The claim.

    Returns
    -------
    str
        A data address of an SVG picture.
    """
    figure = Figure(figsize=(3.6, 3.4), layout="constrained")
    ax = figure.subplots()
    fpr = np.linspace(0, 1, 201)
    allowed = claim_of(spent).tpr_bound(fpr)
    ax.fill_between(fpr, fpr, allowed, color=COLORS[5], alpha=0.35, linewidth=0)
    ax.plot(fpr, allowed, color=COLORS[0], label="most that ε and δ allow")
    loss = compose(spent.event)
    if not loss.is_sampled and math.isfinite(loss.mu_without_sampling):
        best = loss.leak + (1.0 - loss.leak) * norm.cdf(norm.ppf(fpr) + loss.mu_without_sampling)
        ax.plot(fpr, best, color=COLORS[1], linestyle="--", label="most that the noise allows")
    ax.plot([0, 1], [0, 1], color="black", linestyle=":", linewidth=1, label="blind guessing")
    ax.set(
        xlim=(0, 1),
        ylim=(0, 1),
        aspect="equal",
        xlabel="share of others wrongly suspected",
        ylabel="share of members found",
    )
    ax.legend(loc="lower right", fontsize="small")
    return data_address(figure, "svg", "image/svg+xml")


def membership_picture(found: SyntheticMembership) -> str:
    """Draw what attacks on synthetic rows found, on linear and on logarithmic axes.

    Parameters
    ----------
    found : SyntheticMembership
        The attacks.

    Returns
    -------
    str
        A data address of a PNG picture.
    """
    figure = Figure(figsize=(7.2, 4.6))
    left, right = figure.subplots(1, 2)
    # No layout engine keeps a legend of the figure clear of axes with a fixed aspect.
    figure.subplots_adjust(left=0.09, right=0.98, top=0.94, bottom=0.28, wspace=0.3)
    for ax, log in ((left, False), (right, True)):
        found.plot(ax=ax, log=log)
        ax.get_legend().remove()
        ax.set(xlabel="share of others wrongly suspected", ylabel="share of members found")
    left.set_title("all attacks", fontsize="medium")
    right.set_title("small error rates", fontsize="medium")
    figure.legend(*left.get_legend_handles_labels(), loc="lower center", ncols=2, fontsize="small")
    # Curves of thousands of points are smaller as pixels.
    return data_address(figure, "png", "image/png")
