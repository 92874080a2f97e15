import pytest
from sklearn.utils.estimator_checks import parametrize_with_checks
from skdpot.preprocessing import TableEncoder

@pytest.mark.filterwarnings("ignore::skdpot.exceptions.PrivacyWarning")
@parametrize_with_checks([TableEncoder()])
def test_sklearn_contract(estimator, check):
    check(estimator)
