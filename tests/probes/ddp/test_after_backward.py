"""Gradients between backward() and the step: digested once on a GPU where nothing has come between."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from ddpcheck.evidence import ABSENT, UNSEEN
from ddpcheck.probes.ddp import after_backward
from ddpcheck.probes.ddp.after_backward import AfterBackward
from ddpcheck.probes.digests import fast_digests


@pytest.fixture
def _on_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tensors take the way of those on GPUs."""
    monkeypatch.setattr(fast_digests, "_digest", lambda tensor, turn: None)


def parameters() -> list[torch.Tensor]:
    made = [torch.nn.Parameter(torch.randn(size)) for size in (3, 50, 7000)]
    for one in made:
        one.grad = torch.randn_like(one)
    return made


def fresh(these: list[torch.Tensor], but: Any = ()) -> bytes:
    return fast_digests.digests([one.grad for one in these], but=but)


@pytest.mark.usefixtures("_on_gpus")
def test_what_backward_has_left_is_not_digested_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """In the order of the optimizer, which need not be that of the wrapper; of all elements."""
    these = parameters()
    after = AfterBackward(these)
    turned = [these[2], torch.nn.Parameter(torch.ones(2)), these[0], these[1]]
    expected = fresh(turned, {3})
    whole: list[Any] = []
    original = fast_digests.queued
    monkeypatch.setattr(
        fast_digests, "queued", lambda t, turn=None, but=(): whole.append(turn) or original(t, turn, but)
    )
    found = after_backward.unchanged(turned, [None, after], {3})
    assert found is not None
    assert found.told() == expected
    assert whole == [0], "nothing but windows"
    assert expected[8:16] == ABSENT
    assert expected[24:] == UNSEEN


CHANGES: dict[str, Callable[[list[torch.Tensor]], Any]] = {
    "clipped": lambda these: torch.nn.utils.clip_grad_norm_(these, 1e-3),
    "scaled in place": lambda these: these[1].grad.mul_(0.5),  # type: ignore[union-attr]
    "another tensor": lambda these: setattr(these[1], "grad", these[1].grad.clone()),  # type: ignore[union-attr]
    "one is there that was not": lambda these: these.append(torch.nn.Parameter(torch.ones(1))) or setattr(
        these[-1], "grad", torch.ones(1)
    ),
}  # fmt: skip


@pytest.mark.usefixtures("_on_gpus")
@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_whatever_torch_counts_is_seen(change: Callable[[list[torch.Tensor]], Any]) -> None:
    """Then the gradients are digested anew."""
    these = parameters()
    after = AfterBackward(these)
    change(these)
    assert after_backward.unchanged(these, [after], ()) is None


@pytest.mark.usefixtures("_on_gpus")
def test_what_torch_does_not_count_is_not_taken_for_the_same() -> None:
    """Through .data, gradients change behind its back: nothing is said of those, and of the others it is."""
    these = parameters()
    after = AfterBackward(these)
    gradient = these[1].grad
    assert gradient is not None
    gradient.data.mul_(2.0)
    found = after_backward.unchanged(these, [after], ())
    assert found is not None
    told, expected = found.told(), fresh(these)
    assert (told[:8], told[8:16], told[16:]) == (expected[:8], UNSEEN, expected[16:])


def test_on_the_cpu_a_look_is_cheap() -> None:
    """There it is made twice, and sees everything."""
    these = parameters()
    after = AfterBackward(these)
    assert isinstance(after.digests, bytes)
    assert after_backward.unchanged(these, [after], ()) is None
