"""Which places of a batch are seen to have gone into a loss."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.autograd.graph import saved_tensors_hooks
from torch.utils.checkpoint import checkpoint
from torch.utils.data import DataLoader, TensorDataset

import ddpcheck
from ddpcheck import evidence as ev
from ddpcheck.probes.data import sequence_parts
from ddpcheck.probes.recording import recorder

pytestmark = pytest.mark.skipif(
    not hasattr(torch._C._autograd.SavedTensor, "unpack_hook"),
    reason="this torch does not say what a graph keeps as it is",
)
WORDS, IGNORED = 40, -100
Step = Callable[[nn.Module, torch.Tensor, torch.Tensor], torch.Tensor]


@pytest.fixture
def recorded(recorded: Any, monkeypatch: pytest.MonkeyPatch) -> Callable[[], list[ev.Sequences]]:
    """What is recorded from now on."""
    monkeypatch.setattr(sequence_parts, "_backwards", 0)
    return lambda: recorded(ev.Sequences)


def train(step: Step, samples: int = 4) -> None:
    draw = torch.Generator().manual_seed(1)
    data = TensorDataset(
        torch.randint(WORDS, (8, 9), generator=draw), torch.arange(9) >= torch.arange(1, 9).unsqueeze(1)
    )
    model = nn.Sequential(nn.Embedding(WORDS, 6), nn.Linear(6, WORDS))
    for text, mask in DataLoader(data, batch_size=samples):
        step(model, text, mask).backward()


def loss(model: nn.Module, words: torch.Tensor, targets: torch.Tensor, **more: str) -> torch.Tensor:
    return nn.functional.cross_entropy(model(words).transpose(1, 2), targets, ignore_index=IGNORED, **more)


def places(record: ev.Sequences) -> dict[tuple[int, str], list[list[int]]]:
    return {(part.tensor, part.by): part.runs for part in record.parts}


def test_views_and_copies(recorded):
    """Memory says it of views, and contents of copies."""
    train(lambda model, text, mask: loss(model, text[:, 2:6], text[:, 3:7].clone()))
    assert [places(one) for one in recorded()] == [{(0, "Embedding"): [[0, 2, 4]], (0, "NllLoss2D"): [[0, 3, 4]]}] * 2


def test_targets_that_are_shifted(recorded):
    """What is ignored is at no place; targets in one row are as those of samples and places."""

    def step(model: nn.Module, text: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        words = text[:, :5]
        targets = torch.cat([words[:, 1:], words.new_full((len(words), 1), IGNORED)], 1)
        return nn.functional.cross_entropy(model(words).flatten(0, 1), targets.flatten(), ignore_index=IGNORED)

    train(step)
    assert [places(one)[0, "NllLoss"] for one in recorded()] == [[[0, 1, 4]]] * 2


def test_a_mask(recorded):
    """Many of its places are the same, and memory knows which they were; it may be of another kind, too."""

    def step(model: nn.Module, text: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        each = loss(model, text[:, :4], text[:, 1:5], reduction="none")
        return (each * mask[:, 5:]).sum() + (each.exp() * mask[:, :4].float()).sum()

    train(step)
    first = recorded()[0]
    runs = [part.runs for part in first.parts if (part.tensor, part.by) == (1, "Mul")]
    assert [[0, 5, 4]] in runs
    assert [[0, 0, 4]] in runs


def test_pieces_out_of_order(recorded):
    """Each run is known by its own place and the batch's."""
    train(lambda model, text, mask: loss(model, torch.cat([text[:, :2], text[:, 7:]], 1), text[:, :4]))
    assert places(recorded()[0])[0, "Embedding"] == [[0, 0, 2], [2, 7, 2]]


def test_nothing_is_unpacked(recorded):
    """A hook that unpacks, as that of a checkpointed function, has its own reasons."""
    unpacked = []

    def step(model: nn.Module, text: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        with saved_tensors_hooks(lambda one: one, lambda one: unpacked.append(len(unpacked)) or one):
            return loss(model, text[:, :4], text[:, 1:5]) + checkpoint(model, text, use_reentrant=False).sum()

    train(step)
    assert recorded() == []
    twice = len(unpacked)
    sequence_parts._backwards = 0
    with recorder.silence():
        train(step)
    assert len(unpacked) == 2 * twice


def test_a_batch_that_is_gone(recorded):
    """Nothing is kept for a look at it."""
    model = nn.Embedding(WORDS, 6)
    for (text,) in DataLoader(TensorDataset(torch.randint(WORDS, (8, 9))), batch_size=4):
        words = text[:, :4].clone()
        del text
        model(words).sum().backward()
    assert recorded() == []


def test_memory_that_was_let_go_of(recorded):
    """FSDP frees what it has gathered until the backward, also of a frozen weight that the graph keeps."""
    data = torch.randn(8, 5, 16)
    layer = nn.Linear(16, 16).requires_grad_(False)
    for (batch,) in DataLoader(TensorDataset(data), batch_size=4):
        made = layer(batch * nn.Parameter(torch.ones(16)))
        size = layer.weight.untyped_storage().nbytes()
        layer.weight.untyped_storage().resize_(0)
        sequence_parts._look(recorder.current(), 0, made.sum(), 0)
        layer.weight.untyped_storage().resize_(size)
    assert {part.by for one in recorded() for part in one.parts} == {"Mul"}


def test_a_default_device(recorded):
    """The look makes its own numbers where the batch is, whatever the program makes its tensors on."""
    model = nn.Sequential(nn.Embedding(WORDS, 6), nn.Linear(6, WORDS))
    for (text,) in DataLoader(TensorDataset(torch.randint(WORDS, (4, 9))), batch_size=4):
        made = loss(model, text[:, :4], text[:, 1:5])
        with torch.device("meta"):
            sequence_parts._look(recorder.current(), 0, made, 0)
    assert len(recorded()) == 1


def test_where_another_text_may_begin(recorded):
    """With what the first one begins with, or after what the last one ends with."""
    text = torch.arange(1, 10).repeat(2, 1)
    text[:, 4], text[:, 6] = text[:, 0], text[:, 8]
    model = nn.Sequential(nn.Embedding(WORDS, 6), nn.Linear(6, WORDS))
    for (batch,) in DataLoader(TensorDataset(text), batch_size=2):
        loss(model, batch[:, :4], batch[:, 1:5]).backward()
    assert [one.breaks for one in recorded()] == [[[4, 7]]]


KEYS = 8
CAUSAL = torch.arange(4).unsqueeze(1) + 2 >= torch.arange(KEYS)
ZIGZAG = torch.tensor([0, 1, 6, 7]).unsqueeze(1) >= torch.tensor([0, 1, 6, 7, 2, 3, 4, 5])


@pytest.mark.parametrize(("seen", "expected"), [
    ([CAUSAL], False),  # places are taken for those of the sequence
    ([ZIGZAG], True),
    ([torch.ones(4, KEYS, dtype=torch.bool)], True),
    ([ZIGZAG, CAUSAL], False),
    ([CAUSAL[:, :4]], False),  # among its own places alone
    ([], False),
])  # fmt: skip
def test_what_attention_sees_of_more_than_a_ranks_own(recorded, seen, expected):
    model = nn.Sequential(nn.Embedding(WORDS, 6), nn.Linear(6, WORDS))
    for (text,) in DataLoader(TensorDataset(torch.randint(WORDS, (4, 9))), batch_size=4):
        hidden = model[0](text[:, :4])
        for mask in seen:
            every = torch.cat([hidden, hidden], 1)[:, : mask.shape[1]]
            scores = (hidden @ every.transpose(1, 2)).masked_fill(~mask, -torch.inf)
            hidden = scores.softmax(-1) @ every
        nn.functional.cross_entropy(model[1](hidden).transpose(1, 2), text[:, 1:5]).backward()
    assert [one.any_order for one in recorded()] == [expected]


def test_on_a_device_nothing_is_looked_at(recorded):
    """And that is said."""
    with ddpcheck.simulated_devices(1):
        model = nn.Linear(3, 2, device="cuda")
        data = TensorDataset(torch.ones(8, 3))
        for (inputs,) in DataLoader(data, batch_size=4):
            model(inputs.cuda()).sum().backward()
    assert [(one.unseen, one.parts) for one in recorded()] == [(True, [])] * 2
