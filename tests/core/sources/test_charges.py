"""A fit of batches charges once, after it has read all rows once and before any noise is drawn."""

import numpy as np
import pytest
from sklearn.base import clone

from skdpot import DPTableSynthesizer, PrivacyBudget, SlicedSketch
from skdpot.exceptions import BudgetExceededError, LedgerError
from skdpot.preprocessing import TableEncoder
from skdpot.privacy import noise
from tests.core.sources.forms import NUMBERS, TABLE, Parts

pytestmark = pytest.mark.filterwarnings("ignore::skdpot.exceptions.PrivacyWarning")
FITS = {
    "sketch": SlicedSketch(bounds=(-3, 3), conditional=True),
    "sketch, private bounds": SlicedSketch(epsilon=50.0, conditional=True),
    "encoder": TableEncoder(epsilon=50.0),
    "synthesizer": DPTableSynthesizer(epsilon=50.0, n_particles=100),
}
EACH = pytest.mark.parametrize("name", FITS)
ROWS = TABLE[[*NUMBERS, "label"]]


class Watched(Parts):
    """Parts that note how often has been charged before each pass."""

    def sum(self, count):
        self.log.append(("pass", len(self.budget.history())))
        found = super().sum(count)
        self.log.append(("read", len(self.budget.history())))
        return found


def fitted(name, budget, n_parts=8):
    """Fit, and return the estimator and the passes and draws with the charges before each."""
    ends = np.linspace(0, len(ROWS), n_parts + 1).astype(int).tolist()
    parts = [slice(*pair) for pair in zip(ends, ends[1:], strict=False)]
    source, log = Watched(ROWS, parts, np.random.default_rng(0)), []
    source.budget, source.log = budget, log
    draw = noise.discrete_gaussian

    def drawn(s, size, *args, **options):
        log.append((f"draw {size}", len(budget.history())))
        return draw(s, size, *args, **options)

    estimator = clone(FITS[name]).set_params(budget=budget)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(noise, "discrete_gaussian", drawn)
        try:
            return estimator.fit(source, "label"), log
        except (BudgetExceededError, LedgerError) as error:
            return error, log


@EACH
def test_one_charge_after_the_first_pass_and_before_noise(name):
    _, log = fitted(name, PrivacyBudget(60.0))
    assert log[:2] == [("pass", 0), ("read", 0)]
    assert {charges for _, charges in log[2:]} == {1}
    for (what, _), (after, _) in zip(log, log[1:], strict=False):
        assert what != "pass" or after == "read"  # no noise is drawn while rows are counted
    draws = [what for what, _ in log if what.startswith("draw")]
    assert draws
    if "sketch" in name:  # what a table draws next depends on noise
        assert draws == [w for w, _ in fitted(name, PrivacyBudget(60.0), 1)[1] if "draw" in w]


@EACH
def test_a_charge_that_is_refused_stops_the_fit(name):
    budget = PrivacyBudget(0.5)
    error, log = fitted(name, budget)
    assert isinstance(error, BudgetExceededError)
    assert log == [("pass", 0), ("read", 0)]
    assert budget.history().empty


@EACH
def test_a_ledger_that_breaks_between_passes_stops_the_fit(name, tmp_path):
    class Breaking(PrivacyBudget):
        def history(self):
            if not broken:
                broken.append((tmp_path / "ledger").write_bytes(b""))
            return []

    broken = []
    error, log = fitted(name, Breaking(60.0, ledger=tmp_path / "ledger"))
    assert isinstance(error, LedgerError)
    assert [what for what, _ in log] == ["pass", "read"]
