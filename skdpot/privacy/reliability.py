"""The errors of the outputs of a fit due to privacy noise, computed from the release."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import pandas as pd

from skdpot._utils.pages import html_card
from skdpot.exceptions import warn_unreliable

_NAMED = 3  # largest number of outputs that a warning names


@dataclass(frozen=True, kw_only=True)
class OutputError:
    """The error of one output, and the error of a trivial answer that needs no data.

    Parameters
    ----------
    output : str
        Name of the output, for example ``"scale of age"``.
    standard_error : float
        Standard deviation of the output about its value without privacy noise, in the unit of the
        output. It follows from the release and public facts, and is at most the largest possible
        error.
    trivial : str
        The trivial answer, for example ``"the middle of the bounds"``.
    trivial_error : float
        The error of the trivial answer in the same unit, as estimated from the release; inf if
        there is no trivial answer.
    estimate : float, optional
        The output itself, if it is a number.
    margin : float, default=0.0
        The output is reliable if its error is at most this value, with any trivial answer. The
        margin has the unit of the output and is a public share of its range.
    replaced : bool, default=False
        Whether the fit has replaced the output by the trivial answer.
    """

    output: str
    standard_error: float
    trivial: str
    trivial_error: float
    estimate: float | None = None
    margin: float = 0.0
    replaced: bool = False

    @property
    def reliable(self) -> bool:
        """Whether the output is kept, and its error is below the margin or the trivial error."""
        good = self.standard_error <= self.margin or self.standard_error < self.trivial_error
        return good and not self.replaced


@dataclass(frozen=True)
class Reliability:
    """The errors of the outputs of a fit, each compared with that of a trivial answer.

    Parameters
    ----------
    outputs : tuple of OutputError
        The main outputs.
    advice : str, default=""
        One sentence on how to improve unreliable outputs.

    Privacy
    -------
    It is post-processing of the release, costs nothing and may be published with the release.

    Examples
    --------
    >>> from skdpot.privacy import OutputError, Reliability
    >>> mean = OutputError(
    ...     output="mean of age",
    ...     estimate=51.0,
    ...     standard_error=0.4,
    ...     trivial="the middle of the bounds",
    ...     trivial_error=8.0,
    ... )
    >>> Reliability((mean,)).unreliable
    ()
    >>> list(Reliability((mean,)).to_frame().columns)
    ['estimate', 'standard_error', 'trivial', 'trivial_error', 'reliable']
    """

    outputs: tuple[OutputError, ...]
    advice: str = ""

    @property
    def unreliable(self) -> tuple[str, ...]:
        """Names of the outputs that are no better than the trivial answer."""
        return tuple(item.output for item in self.outputs if not item.reliable)

    def __iter__(self) -> Iterator[OutputError]:
        """Iterate over the outputs."""
        return iter(self.outputs)

    def to_frame(self) -> pd.DataFrame:
        """Return a table with one row per output.

        Returns
        -------
        DataFrame
            Columns estimate, standard_error, trivial, trivial_error and reliable; the index holds
            the names of the outputs.
        """
        columns = ["estimate", "standard_error", "trivial", "trivial_error", "reliable"]
        rows = [[getattr(item, name) for name in columns] for item in self.outputs]
        names = pd.Index([item.output for item in self.outputs], name="output")
        return pd.DataFrame(rows, index=names, columns=columns)

    def sentence(self) -> str:
        """Return a text with the unreliable outputs and the advice; empty if there are none."""
        poor = [item for item in self.outputs if not item.reliable]
        if not poor:
            return ""
        answers = " or ".join(dict.fromkeys(item.trivial for item in poor))
        kept = "was put in their place" if all(item.replaced for item in poor) else "is as good"
        text = f"The privacy noise hides {named(self.unreliable)}; {answers} {kept}."
        return f"{text} {self.advice}".rstrip()

    def warn(self, caller: str) -> None:
        """Warn once of the unreliable outputs, by name."""
        if text := self.sentence():
            warn_unreliable(f"{caller}: {text}")

    def __str__(self) -> str:
        """Return the table as text."""
        return self.to_frame().to_string(float_format="{:.3g}".format)

    def _repr_html_(self) -> str:
        """Return the errors as a card for notebooks."""
        facts = [(item.output, _fact(item)) for item in self.outputs]
        poor = len(self.unreliable)
        verdict = f"noise hides {poor} of {len(facts)} outputs" if poor else "all above noise"
        return html_card("Reliability", verdict, facts)


def named(names: Iterable[str]) -> str:
    """Join names for a message: the first few, and the number of the others."""
    names = list(names)
    shown, more = names[:_NAMED], len(names) - _NAMED
    if more > 0:
        return f"{', '.join(shown)} and {more} more"
    return " and ".join(filter(None, [", ".join(shown[:-1]), shown[-1]]))


def _fact(item: OutputError) -> str:
    """Describe the error of one output."""
    value = "" if item.estimate is None else f"{item.estimate:.4g} "
    verdict = "" if item.reliable else " (replaced)" if item.replaced else " (unreliable)"
    beside = f"{item.trivial}: {item.trivial_error:.2g}"
    return f"{value}± {item.standard_error:.2g}; {beside}{verdict}"
