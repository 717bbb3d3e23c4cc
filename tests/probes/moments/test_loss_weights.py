"""What each element of a loss counts: read while its gradient passes, for every way of making a loss of elements."""

from __future__ import annotations

import gc
import weakref

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from ddpcheck.evidence import ORACLE, LossWeights
from ddpcheck.probes.devices.device_numbers import Fetched
from ddpcheck.probes.moments import loss_weights, windows
from ddpcheck.probes.optimizers import gradient_events
from ddpcheck.probes.processes import later_records
from ddpcheck.probes.recording import recorder

pytestmark = pytest.mark.skipif(
    not hasattr(torch.autograd.graph.Node, "_input_metadata"),
    reason="what autograd's operations have made has no shapes before torch 2.5",
)


@pytest.fixture
def weigh(monkeypatch):
    """Have backwards weighed: a function that gives the records since it was called last."""
    monkeypatch.setattr(loss_weights._Seen, "batch", None)
    monkeypatch.setattr(windows, "is_looked_at", lambda: True)
    surroundings = gradient_events.Surroundings()
    surroundings.also(loss_weights._begins)
    monkeypatch.setattr(gradient_events, "BACKWARD", surroundings)
    monkeypatch.setattr(torch.autograd, "backward", gradient_events._around_backward(torch.autograd.backward))
    writer = recorder.InMemory()
    before = recorder.leave()
    recorder.use(writer)
    told = 0

    def since():
        nonlocal told
        found = [record for record in writer.kept if isinstance(record, LossWeights)]
        new, told = found[told:], len(found)
        return new

    yield since
    recorder.use(before)


LOGITS = torch.randn(6, 3, generator=torch.Generator().manual_seed(1))
TARGET = torch.tensor([0, 1, 2, 0, 1, -100])
REAL = torch.rand(6, 3, generator=torch.Generator().manual_seed(2))
MASK = torch.tensor([1.0, 1, 0, 1, 0, 0])

SIX = [("NllLoss", "mean", 6, 1 / 6)]
LOSSES = {
    "mean": (lambda o: F.cross_entropy(o, TARGET), [("NllLoss", "mean", 5, 1 / 5)]),
    "divided": (lambda o: F.cross_entropy(o, TARGET) / 4, [("NllLoss", "mean", 5, 1 / 20)]),
    "scaled": (lambda o: torch.tensor(1024.0) * F.cross_entropy(o, TARGET), [("NllLoss", "mean", 5, 1024 / 5)]),
    "sum": (lambda o: F.cross_entropy(o, TARGET, reduction="sum"), [("NllLoss", "sum", 5, 1.0)]),
    "sum by the program": (lambda o: F.cross_entropy(o, TARGET, reduction="sum") / 7, [("NllLoss", "sum", 5, 1 / 7)]),
    "each by itself": (
        lambda o: F.cross_entropy(o, TARGET, reduction="none").sum() / 5,
        [("NllLoss", "elements", 5, 1 / 5)],
    ),
    "masked": (
        lambda o: (F.mse_loss(o, REAL, reduction="none").sum(1) * MASK).sum() / MASK.sum(),
        [("Mul", "elements", 3, 1 / 3)],
    ),
    "images": (
        lambda o: F.cross_entropy(o.view(1, 3, 6), TARGET[None]),
        [("NllLoss2D", "mean", 5, 1 / 5)],
    ),
    "squares": (lambda o: F.mse_loss(o, REAL), [("MseLoss", "mean", 18, 1 / 18)]),
    "squares by hand": (lambda o: ((o - REAL) ** 2).mean(), [("Pow", "elements", 18, 1 / 18)]),
    "by rows": (lambda o: ((o - REAL) ** 2).sum(1).mean(), [("Pow", "elements", 18, 1 / 6)]),
    "negative": (lambda o: -(o.log_softmax(1)[:, 0]).mean(), None),
    "binary": (
        lambda o: F.binary_cross_entropy_with_logits(o, REAL),
        [("BinaryCrossEntropyWithLogits", "mean", 18, 1 / 18)],
    ),
    "smooth": (lambda o: F.smooth_l1_loss(o, REAL), [("SmoothL1Loss", "mean", 18, 1 / 18)]),
    "absolute": (lambda o: F.l1_loss(o, REAL), [("Abs", "elements", 18, 1 / 18)]),
    "two terms": (
        lambda o: F.cross_entropy(o, TARGET) + 0.1 * o.pow(2).mean(),
        [("NllLoss", "mean", 5, 1 / 5), ("Pow", "elements", 18, 0.1 / 18)],
    ),
    "a list of losses": (
        lambda o: torch.stack([F.mse_loss(o, REAL), F.mse_loss(o, REAL + 1)]).mean(),
        [("MseLoss", "mean", 18, 1 / 36)] * 2,
    ),
    "times zero": (lambda o: 0 * o.pow(2).sum(), [("Pow", "elements", 0, 0.0)]),
    "in 16 bits": (lambda o: F.mse_loss(o.bfloat16(), REAL.bfloat16()), [("MseLoss", "mean", 18, 1 / 18)]),
}


@pytest.mark.parametrize("name", LOSSES)
def test_a_loss(weigh, name):
    make, expected = LOSSES[name]
    make(LOGITS.clone().requires_grad_()).backward()
    (said,) = weigh()
    assert said.why == ""
    if expected is None:
        assert [term.weight for term in said.terms] == [pytest.approx(1 / 6)]
        return
    assert [(t.by, t.kind, t.elements) for t in said.terms] == [one[:3] for one in expected]
    rounding = 1e-2 if name == "in 16 bits" else 1e-6
    assert [t.weight for t in said.terms] == [pytest.approx(one[3], rel=rounding) for one in expected]


NOT_FOLLOWED = {
    "a root": (lambda o: F.mse_loss(o, REAL).sqrt(), "one number that Sqrt has made"),
    "a quotient": (lambda o: o.sum() / o.pow(2).sum(), "divided by each other"),
    "one over it": (lambda o: 1 / o.pow(2).sum(), "Reciprocal"),
    "a product": (lambda o: o.sum() * o.pow(2).sum(), "are multiplied"),
    "weights of classes": (
        lambda o: F.cross_entropy(o, TARGET, weight=torch.tensor([1.0, 2, 3])),
        "have different weights already",
    ),
    "a factor for each": (lambda o: (o.pow(2).sum(1) @ MASK) / 3, "Dot"),
    "not finite": (lambda o: F.mse_loss(o, REAL) * float("inf"), "not finite"),
    "many": (lambda o: sum(o.pow(n).mean() for n in range(2, 20)), "more than 16 terms"),
}


@pytest.mark.parametrize("name", NOT_FOLLOWED)
def test_what_has_no_weights(weigh, name):
    make, why = NOT_FOLLOWED[name]
    make(LOGITS.clone().requires_grad_()).backward()
    (said,) = weigh()
    assert said.terms == []
    assert why in said.why


def test_gradients_are_as_without(weigh):
    plain, weighed = LOGITS.clone().requires_grad_(), LOGITS.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(F.cross_entropy(plain, TARGET), plain)
    F.cross_entropy(weighed, TARGET).backward()
    assert torch.equal(gradient, weighed.grad)


def test_the_graph_goes_with_the_loss(weigh):
    """What is kept until the step are numbers: a graph that lives on would be the memory of a forward."""

    class Held:
        pass

    held = Held()
    hidden = LOGITS.clone().requires_grad_() * 2
    hidden.grad_fn.metadata["held"] = held
    gone = weakref.ref(held)
    loss = F.cross_entropy(hidden, TARGET)
    loss.backward()
    del loss, hidden, held
    gc.collect()
    assert gone() is None
    assert weigh()[0].why == ""


def test_a_part_that_is_recomputed(weigh):
    """Of what a checkpoint has not kept, nothing is asked for: it would be computed once more, for us."""
    runs = []

    def last(o):
        runs.append(1)
        return F.cross_entropy(o * 2, TARGET) * 3

    for reentrant in (False, True):
        runs.clear()
        checkpoint(last, LOGITS.clone().requires_grad_(), use_reentrant=reentrant).backward()
        assert len(runs) == 2
    first, second = weigh()
    assert [(t.by, t.weight) for t in first.terms] == [("NllLoss", pytest.approx(3 / 5))]
    assert "CheckpointFunction" in second.why


def test_a_backward_that_fails(weigh):
    """The program has its error, and the next backward is weighed."""
    o = LOGITS.clone().requires_grad_()
    loss = F.cross_entropy(o, TARGET)
    loss.backward()
    with pytest.raises(RuntimeError, match="second time"):
        loss.backward()
    (first,) = weigh()
    assert first.terms
    F.cross_entropy(o, TARGET).backward()
    assert weigh()[0].terms


def test_a_copy_that_is_on_its_way(weigh, monkeypatch):
    """Nothing waits for a device: a step's record comes when it is there, and those after it in their order."""

    class Late(Fetched):
        over = False

        def is_there(self):
            return self.over

    monkeypatch.setattr(loss_weights, "Fetched", Late)
    o = LOGITS.clone().requires_grad_()
    for _ in range(3):
        F.cross_entropy(o, TARGET).backward()
    assert weigh() == []
    Late.over = True
    later_records.look()
    assert len(weigh()) == 3


def test_an_iterator_of_losses_is_left_to_the_program(weigh):
    """torch takes any iterable: one that was looked through would be empty by then."""
    o = LOGITS.clone().requires_grad_()
    torch.autograd.backward(o[number].sum() for number in range(2))
    assert o.grad[:2].eq(1).all()
    assert "no list of tensors" in weigh()[0].why


def test_several_losses(weigh):
    o = LOGITS.clone().requires_grad_()
    torch.autograd.backward([F.cross_entropy(o, TARGET), o.pow(2).mean()])
    assert [term.by for term in weigh()[0].terms] == ["NllLoss", "Pow"]


def test_tensors_without_memory(weigh):
    w = torch.ones(3, device="meta", requires_grad=True)
    (w * 2).pow(2).sum().backward()
    assert "no plain tensor" in weigh()[0].why


def test_one_number_for_all_elements_is_not_copied_for_each():
    """The gradient of a mean is one number, however many elements the loss has."""
    seen = torch.tensor(0.25).expand(1 << 20, 1 << 10)
    assert loss_weights._spread(seen).tolist() == [1 << 30, 0.25, 0.25]
    rows = torch.tensor([[0.5], [0.0]]).expand(2, 1 << 24)
    assert loss_weights._spread(rows).tolist() == [1 << 24, 0.5, 0.5]
    with pytest.raises(loss_weights.NotFollowed, match="elements"):
        loss_weights._spread(torch.empty(loss_weights.LARGEST + 1, dtype=torch.bool))


def test_a_loss_that_takes_long_to_look_at(weigh, monkeypatch):
    """It is left to who asks for it."""
    monkeypatch.setitem(loss_weights.CHEAP, "cpu", 10)
    o = LOGITS.clone().requires_grad_()
    F.cross_entropy(o, TARGET).backward()
    assert "--oracle weighs it" in weigh()[0].why
    monkeypatch.setenv(ORACLE, "1")
    F.cross_entropy(o, TARGET).backward()
    assert not weigh()[0].why


def test_a_parameter_is_no_part_of_the_loss(weigh):
    """``0 * p.sum()`` has every parameter take part, and no sample."""
    o, p = LOGITS.clone().requires_grad_(), torch.ones(5, requires_grad=True)
    (F.cross_entropy(o, TARGET) + 0 * p.sum()).backward()
    assert [term.by for term in weigh()[0].terms] == ["NllLoss"]


def test_outputs_that_ddp_passes_on(weigh):
    """DDP puts an operation of its own behind what a forward returns: the loss may be one of several outputs."""
    from torch.nn.parallel.distributed import _DDPSink

    net = nn.Linear(3, 3)
    net._ddp_sink_clone = True
    out = net(LOGITS)
    other, loss = _DDPSink.apply(weakref.ref(net), out.sum(), F.cross_entropy(out, TARGET))
    assert other is not None
    (found,) = loss_weights.loss_terms.found_in([loss * 2])
    assert (found.by, found.kind) == ("NllLoss", "mean")


def test_a_stage_goes_on_with_gradients_that_it_was_sent(weigh):
    """What it gives to backward() is no loss, whatever shape the gradient of a loss has."""
    o = LOGITS.clone().requires_grad_()
    made = o * 2
    torch.autograd.backward([made], grad_tensors=[torch.ones_like(made)])
    F.mse_loss(o, REAL).backward(torch.tensor(0.5))
    first, second = weigh()
    assert (first.continued, first.terms, first.value) == (True, [], None)
    assert not second.continued
    assert second.terms[0].weight == pytest.approx(0.5 / 18)


def test_the_value_of_a_loss(weigh):
    """Ranks that share a batch have the same."""
    o = LOGITS.clone().requires_grad_()
    loss = F.mse_loss(o, REAL)
    loss.backward()
    assert weigh()[0].value == pytest.approx(float(loss.detach()))


@pytest.mark.parametrize(("mask", "scaled"), [(MASK, False), (MASK * 3, True)])
def test_a_mask_is_no_scale(weigh, mask, scaled):
    o = LOGITS.clone().requires_grad_()
    (F.mse_loss(o, REAL, reduction="none").sum(1) * mask).sum().backward()
    assert weigh()[0].terms[0].scaled == scaled


def test_what_scales_each_part(weigh):
    """In the order from the loss's end; of a loss of one part, nothing."""
    o = LOGITS.clone().requires_grad_()
    (3 * (F.mse_loss(o, REAL) / 4 + 0.5 * F.l1_loss(o, REAL))).backward()
    F.mse_loss(o, REAL).mul(2).backward()
    both, one = weigh()
    assert [term.scales for term in both.terms] == [pytest.approx([3, 1 / 4]), pytest.approx([3, 0.5])]
    assert [term.factors for term in both.terms] == ["*/", "**"]
    assert [term.scales for term in one.terms] == [[]]
