"""Every fit states the errors of its outputs, beside those of trivial answers."""

import math
import pickle
import warnings

import numpy as np
import pytest

from skdpot.exceptions import ReliabilityWarning
from skdpot.privacy import OutputError, Reliability
from tests.contract.fits import FITS, swept


@pytest.mark.parametrize("name", swept(FITS))
def test_every_fit_states_its_errors_and_warns_once_of_what_noise_hides(name):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        fitted = FITS[name].fitted(random_state=3)
    reliability = fitted.reliability_
    assert isinstance(reliability, Reliability)
    assert reliability.outputs
    for output in reliability:
        assert 0.0 <= output.standard_error < math.inf, output
        assert output.trivial_error >= 0.0, output
        assert output.trivial, output
    told = [str(w.message) for w in caught if issubclass(w.category, ReliabilityWarning)]
    by_public_facts = [text for text in told if "too small for this epsilon" in text]
    assert len(told) == bool(by_public_facts or reliability.unreliable)
    for text in told:
        part = getattr(fitted, "estimator_", fitted)  # a fit of its own, which warns
        assert {type(fitted).__name__, type(part).__name__} & set(text.split(":"))
        assert text in by_public_facts or reliability.unreliable[0] in text
    assert repr(pickle.loads(pickle.dumps(reliability))) == repr(reliability)
    assert len(reliability.to_frame()) == len(reliability.outputs)
    assert reliability.outputs[0].output.split()[0] in reliability._repr_html_()


@pytest.mark.filterwarnings("ignore::skdpot.exceptions.PrivacyWarning")
@pytest.mark.filterwarnings("ignore::skdpot.exceptions.FairnessWarning")
@pytest.mark.parametrize("name", swept(FITS))
def test_without_noise_nothing_is_hidden(name):
    fit = FITS[name]
    if "epsilon" not in fit.estimator.get_params():
        pytest.skip("states its cost otherwise")
    try:
        fitted = fit.fitted(epsilon=math.inf, random_state=3)
    except ValueError:
        pytest.skip("needs privacy")
    if fitted.privacy_spent_ is not None and math.isfinite(fitted.privacy_spent_.epsilon):
        pytest.skip("its noise is given otherwise")
    assert not fitted.reliability_.unreliable


def output(error, trivial=1.0, **facts):
    return OutputError(
        output="mean of age",
        standard_error=error,
        trivial="the middle of the bounds",
        trivial_error=trivial,
        **facts,
    )


@pytest.mark.parametrize(
    ("error", "facts", "reliable"),
    [
        (0.5, {}, True),
        (1.0, {}, False),
        (2.0, {}, False),
        (2.0, {"margin": 3.0}, True),
        (0.5, {"replaced": True}, False),
        (0.0, {"trivial": 0.0}, True),
        (9.0, {"trivial": np.inf}, True),
    ],
)
def test_an_output_is_reliable_below_its_margin_or_the_trivial_error(error, facts, reliable):
    assert output(error, **facts).reliable is reliable


def test_a_warning_names_the_outputs_and_what_would_help():
    poor = Reliability((output(2.0), output(0.1)), advice="Use more rows.")
    with pytest.warns(ReliabilityWarning, match=r"Thing: The privacy noise hides mean of age; the"):
        poor.warn("Thing")
    assert poor.sentence().endswith("the middle of the bounds is as good. Use more rows.")
    assert Reliability((output(0.1),)).sentence() == ""
    replaced = Reliability((output(2.0, replaced=True),))
    assert replaced.sentence().endswith("the middle of the bounds was put in their place.")
