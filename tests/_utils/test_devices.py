"""The ``device=`` parameter."""

import pytest
import torch

from skdpot._utils.validation import resolve_device


def test_the_cpu_means_numpy():
    assert resolve_device("cpu") is None


@pytest.mark.parametrize("available", [False, True])
def test_auto_takes_a_gpu_if_there_is_one(available, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: available)
    device = resolve_device("auto")
    assert device == (torch.device("cuda") if available else None)
    assert resolve_device("cpu") is None


def test_a_missing_gpu_is_an_error(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(ValueError, match='device="cuda" needs a GPU'):
        resolve_device("cuda")
