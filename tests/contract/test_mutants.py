"""Every defect of `tests.contract.mutants` is caught by the test that is named for it.

The named test passes on the package as it is, as the whole suite shows. With the defect it fails by
an assertion, while the code that was changed runs: an error that a bad patch causes does not count.
The tests of a file run in this process, one after the other, with the seeds that they have; those
of which the noise is secret state their false alarms, and miss their mutant less than once in 10^6
runs.
"""

import os

import hypothesis
import pytest

from skdpot.privacy import gdp
from skdpot.privacy.gdp import gdp_epsilon
from tests.contract.injection import (
    Injection,
    Outcome,
    Reached,
    StaleMutantError,
    reading,
    replaced,
    returning,
    run_tests,
)
from tests.contract.mutants import BY_AUDIT, DEFECTS, FILES, MUTANTS, results

EVERYTHING = bool(os.environ.get("SKDPOT_ALL"))


@pytest.mark.slow
@pytest.mark.parametrize("file", [file for file in FILES if file != BY_AUDIT or EVERYTHING])
def test_named_tests_catch_their_mutants(file):
    # Every named test runs without a mutant elsewhere in the suite; one shows that it can here.
    healthy, found = results(file, n_healthy=1)
    assert found
    assert all(outcome.healthy for outcome in healthy.values()), f"fails already: {healthy}"
    for mutant, hurt in found:
        assert hurt.calls > 0, f"{mutant}: nothing was called that it changes; {hurt.errors}"
        assert hurt.errors, f"{mutant} survives {mutant.caught_by}"
        assert hurt.caught, f"{mutant}: {mutant.caught_by} breaks: {hurt.errors}"


def test_every_defect_has_a_mutant_and_no_mutant_is_there_twice():
    assert {mutant.defect for mutant in MUTANTS} == set(DEFECTS)
    assert len({str(mutant) for mutant in MUTANTS}) == len(MUTANTS)
    every_mechanism_charges = [mutant for mutant in MUTANTS if mutant.defect == 4]
    assert len(every_mechanism_charges) >= 20


@pytest.mark.slow
def test_every_mutant_finds_what_it_changes():
    """In seconds, for whoever has moved something."""
    stale = []
    for inject in {mutant.inject for mutant in MUTANTS}:
        with pytest.MonkeyPatch.context() as patch:
            try:
                inject.inject(patch, Reached())
            except StaleMutantError as error:
                stale.append(str(error))
    assert not stale


# --- the harness itself --------------------------------------------------------------------------

TEST = "tests/core/privacy/test_accounting.py::test_known_value"
WHERE = "bisected"


def outcome(injection):
    healthy, (hurt,) = run_tests([(TEST, injection)])
    assert healthy[TEST].healthy
    return hurt


def test_a_change_that_changes_nothing_is_not_caught():
    hurt = outcome(replaced(WHERE, lambda original: original, "the same"))
    assert hurt.calls > 0
    assert (hurt.passed, hurt.errors, hurt.caught) == (1, [], False)


def test_an_error_that_a_patch_causes_does_not_count():
    def broken(*_):
        raise TypeError("a bad patch")

    hurt = outcome(replaced(WHERE, lambda _: broken, "broken"))
    assert isinstance(hurt.errors[0], TypeError)
    assert hurt.calls > 0
    assert not hurt.caught


@pytest.mark.parametrize(
    "gone", [replaced("no_such_name", lambda _: None, ""), reading(WHERE, no_such_name=0)]
)
def test_a_name_that_is_gone_is_an_error_of_the_mutant(gone):
    hurt = outcome(gone)
    assert "no_such_name" in str(hurt.errors[0])
    assert not hurt.caught


def test_a_failure_without_a_call_of_the_mutated_code_does_not_count():
    def elsewhere(patch, reached):
        patch.setattr(pytest, "approx", lambda *_, **__: None)

    hurt = outcome(Injection("pytest.approx", "nothing of the package", elsewhere))
    assert isinstance(hurt.errors[0], AssertionError)
    assert hurt.calls == 0
    assert not hurt.caught


def test_everybody_has_the_defect_and_afterwards_it_is_gone():
    """Also those who imported the function before, and what caches have kept."""
    before, original = gdp_epsilon(1.0, 1e-5), gdp.bisected
    hurt = outcome(returning(WHERE, lambda found: (found[0] / 2, found[1] / 2)))
    assert hurt.caught
    assert "0.5" in hurt.says
    assert Outcome(errors=[AssertionError("\nArrays are not equal\n")]).says
    assert gdp.bisected is original
    assert gdp_epsilon(1.0, 1e-5) == before
    assert hypothesis.settings.get_current_profile_name() != "mutants"
