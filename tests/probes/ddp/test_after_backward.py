"""Gradients between backward() and the step."""

from __future__ import annotations

import pytest
import torch

from ddpcheck.evidence import Usage
from ddpcheck.probes.ddp import after_backward
from ddpcheck.probes.ddp.after_backward import AfterBackward
from ddpcheck.probes.devices.awaited import told
from ddpcheck.probes.digests import fast_digests


@pytest.mark.parametrize("on_gpus", [False, True])
def test_what_backward_has_left_is_told_with_the_usage(on_gpus: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """As it was then, whatever is done to the gradients afterwards, and however late it arrives."""
    if on_gpus:
        monkeypatch.setattr(fast_digests, "_digest", lambda tensor, turn: None)
    parameter = torch.nn.Parameter(torch.ones(3))
    parameter.grad = torch.ones(3)
    expected = fast_digests.digests([parameter.grad])
    after = AfterBackward([parameter])
    parameter.grad.mul_(2.0)
    usage = told(after_backward.with_gradients(Usage(wrapper=3), after))
    assert (usage.wrapper, usage.after) == (3, expected)
    assert fast_digests.digests([parameter.grad]) != expected
    assert after_backward.with_gradients(Usage(wrapper=3), None) == Usage(wrapper=3)
