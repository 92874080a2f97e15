import warnings
from functools import partial

import numpy as np
from sklearn.base import clone
from sklearn.pipeline import make_pipeline

from skdpot import PrivateScaler, SlicedSketch
from skdpot.exceptions import PrivacyWarning, warn_of_privacy


def caught(function):
    with warnings.catch_warnings(record=True) as records:
        warnings.simplefilter("always")
        function()
    return records


def test_a_direct_call_points_here():
    (record,) = caught(lambda: warn_of_privacy("text"))
    assert record.category is PrivacyWarning
    assert record.filename == __file__
    assert str(record.message) == "text"


def test_warnings_point_at_the_line_that_called_the_library():
    rows = np.random.default_rng(0).normal(size=(40, 2))
    sketch = SlicedSketch(epsilon=0.01, random_state=0)
    for estimator in (sketch, PrivateScaler(epsilon=0.01, random_state=0), make_pipeline(sketch)):
        records = caught(partial(clone(estimator).fit, rows))
        assert len(records) >= 2  # the seed, and bounds that fell back
        assert {record.filename for record in records} == {__file__}
