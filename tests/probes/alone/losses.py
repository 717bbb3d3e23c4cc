"""Which losses are noted, at which step one that is not finite goes on record, and where in its forward it came up."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import nn

from ddpcheck import evidence as ev
from ddpcheck.probes.moments import forward_values, losses, windows
from ddpcheck.probes.optimizers import gradient_events
from tests.probes.alone.moments import _from_the_start as _from_the_start

NAN = math.nan


@pytest.fixture(autouse=True)
def _nothing_before(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(losses, "_seen", losses._Seen(None))
    forward_values.taken()
    yield
    forward_values.taken()


class Log(nn.Module):
    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return inputs.relu().log()


class Pooled(nn.Module):
    """A model with code of its own between its modules."""

    def __init__(self) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(4, 4), nn.Linear(4, 1)
        self.over = 1.0

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return self.down((self.up(inputs) * self.over) / self.over)


class Masked(nn.Module):
    """One that makes infinite numbers by right."""

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(4, 3)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return self.head(inputs).masked_fill(torch.tensor([False, True, False]), -math.inf)


def given(net: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SGD(net.parameters(), lr=0.01)


def step(
    net: nn.Module, optimizer: torch.optim.Optimizer, inputs: Any = None, over: Any = 1.0, scored: Any = None
) -> None:
    optimizer.zero_grad()
    made = net(torch.ones(2, 4) if inputs is None else inputs)
    loss = made.sum() if scored is None else scored(made)
    (loss / over).backward()
    optimizer.step()


def noted(recorded: Any) -> list[ev.Losses]:
    losses._end()
    return recorded(ev.Losses)


def last(recorded: Any) -> ev.NotFinite:
    (found,) = noted(recorded)[-1].unlike
    return found


def test_finite_losses_are_written_down_together(recorded):
    net = nn.Linear(4, 1)
    optimizer = given(net)
    for _ in range(losses.EACH + 3):
        step(net, optimizer)
    first, second = noted(recorded)
    assert [(one.met, one.finite, one.lost, one.unlike) for one in (first, second)] == [(64, 64, 0, []), (3, 3, 0, [])]


def test_a_loss_that_is_not_finite_is_written_down_at_its_step(recorded):
    net = nn.Linear(4, 1)
    optimizer = given(net)
    for number in range(6):
        step(net, optimizer, over=torch.tensor(0.0 if number == 2 else 1.0))
    first = recorded(ev.Losses)[0]
    (found,) = first.unlike
    assert (first.met, first.finite, first.lost) == (3, 2, 1)
    assert (found.backward, found.number, found.times, found.is_nan) == (3, 2, 1, False)
    (found,) = noted(recorded)[-1].unlike
    assert (found.number, found.times, found.is_nan) == (2, 4, False)


@pytest.mark.parametrize(("is_other_line", "steps"), [(False, 1), (True, 2)])
def test_a_loss_is_finite_again(recorded, is_other_line, steps):
    """A step was thrown away, and what the run has come to is fine."""
    net = nn.Linear(4, 1)
    optimizer = given(net)
    if is_other_line:
        net(torch.ones(2, 4)).sum().mul(NAN).backward()
        optimizer.zero_grad()
        optimizer.step()
    else:
        step(net, optimizer, inputs=torch.full((2, 4), NAN))
        nn.init.ones_(net.weight)
        nn.init.ones_(net.bias)
    for _ in range(steps):
        step(net, optimizer)
    each = noted(recorded)
    assert not each[-1].unlike
    assert [sum(values) for values in zip(*((one.met, one.finite, one.lost) for one in each), strict=True)] == [
        steps + 1, steps, 1,
    ]  # fmt: skip


def test_two_lines_of_which_one_stays_finite(recorded):
    """Each trains a part of what one optimizer steps."""
    one, other = nn.Linear(4, 1), nn.Linear(4, 1)
    optimizer = torch.optim.SGD([*one.parameters(), *other.parameters()], lr=0.01)
    for _ in range(4):
        (one(torch.ones(2, 4)).sum() * NAN).backward()
        other(torch.ones(2, 4)).sum().backward()
        optimizer.step()
    found = last(recorded)
    assert (found.number, found.times) == (0, 4)


def test_a_finite_loss_that_goes_into_the_same_step(recorded):
    """The step is made on both: one does not make the other good."""
    net = nn.Linear(4, 1)
    optimizer = given(net)
    for scale in (NAN, 1.0):
        (net(torch.ones(2, 4)).sum() * scale).backward()
    optimizer.step()
    assert last(recorded).times == 1


def test_one_line_that_trains_several_models(recorded):
    """One of them stays finite, and says nothing of the other."""
    nets = [nn.Linear(4, 1), nn.Linear(4, 1)]
    each = [(net, given(net)) for net in nets]
    for _ in range(3):
        for net, optimizer in each:
            step(net, optimizer, inputs=torch.full((2, 4), NAN if net is nets[0] else 1.0))
    assert last(recorded).times == 3


def test_a_step_that_makes_its_own_losses(recorded):
    net = nn.Linear(4, 1)
    optimizer = given(net)

    def closure() -> torch.Tensor:
        optimizer.zero_grad()
        loss = net(torch.ones(2, 4)).sum() * NAN
        loss.backward()
        return loss

    for _ in range(3):
        optimizer.step(closure)
    found = last(recorded)
    assert (found.times, found.kept) == (3, True)


def test_steps_without_an_optimizer(recorded):
    net = nn.Linear(4, 1)
    for number in range(4):
        (net(torch.ones(2, 4)).sum() * (NAN if number > 1 else 1.0)).backward()
        with torch.no_grad():
            for parameter in net.parameters():
                parameter -= 0.01 * parameter.grad
    found = last(recorded)
    assert (found.optimizer, found.number, found.times, found.kept) == (losses.NO_STEP, 2, 2, True)


def test_losses_whose_own_optimizer_makes_no_step(recorded):
    """As a scaler has it skip them, while that of another model goes on."""
    net, other = nn.Linear(4, 1), nn.Linear(4, 1)
    optimizer = given(net)
    torch.optim.SGD(other.parameters(), lr=0.01)
    for _ in range(3):
        (other(torch.ones(2, 4)).sum() * NAN).backward()
        step(net, optimizer)
    each = noted(recorded)
    assert not each[-1].unlike
    assert sum(one.lost for one in each) == 3


def test_parameters_on_several_devices_are_not_waited_for(recorded, monkeypatch):
    """What is known on the host is enough where it is not finite."""
    net = nn.Linear(4, 1)
    optimizer = given(net)
    step(net, optimizer)
    there = [torch.zeros((), device="cpu"), torch.zeros((), device="meta")]
    for here, expected in (([], None), ([1.0], None), ([NAN], False)):
        monkeypatch.setattr(forward_values, "numbers_of", lambda _, here=here: [*here, *there])
        assert losses._seen._look(0, 1, []) is expected
    assert not any(one.site == losses.LOOK for one in losses._seen.waiting)


def test_parameters_are_looked_at_less_and_less(recorded, monkeypatch):
    """After a loss that is not finite, and as long as they are not."""
    looks = []
    look = losses._Seen._look
    monkeypatch.setattr(losses._Seen, "_look", lambda self, *given: looks.append(given[1]) or look(self, *given))
    net = nn.Linear(4, 1)
    optimizer = given(net)
    for number in range(40):
        step(net, optimizer, inputs=torch.full((2, 4), NAN if number else 1.0))
    assert looks == [*range(1, 9), 16, 32]


def test_a_line_that_is_in_no_file(recorded, monkeypatch):
    """As of a program that is given as a string."""
    monkeypatch.setattr(gradient_events.user_lines, "here", lambda: ev.NO_SITE)
    net = nn.Linear(4, 1)
    optimizer = given(net)
    for number in range(4):
        step(net, optimizer, inputs=torch.full((2, 4), NAN if number > 1 else 1.0))
    found = last(recorded)
    assert (found.site, found.number, found.times, found.kept) == (ev.NO_SITE, 2, 2, True)


def test_a_loss_without_a_step(recorded):
    net = nn.Linear(4, 1)
    given(net)
    (net(torch.ones(2, 4)).sum() * NAN).backward()
    (end,) = noted(recorded)
    assert (end.met, end.finite, end.lost, end.unlike) == (1, 0, 1, [])


def test_what_is_no_loss(recorded):
    net = nn.Linear(4, 2)
    net(torch.ones(3, 4)).backward(torch.ones(3, 2))
    (end,) = noted(recorded)
    assert (end.met, end.finite, end.lost) == (1, 0, 0)


@pytest.mark.parametrize(
    ("net", "how", "origin"),
    [
        (nn.Linear(4, 1), {"inputs": torch.full((2, 4), NAN)}, ("input", "")),
        (nn.Sequential(nn.Linear(4, 2), Log(), nn.Linear(2, 1)), {"inputs": torch.zeros(2, 4)}, ("module", "1")),
        (nn.Linear(4, 1), {"scored": lambda made: (made - made).sum() / 0}, ("later", "")),
    ],
)
def test_where_it_came_up(recorded, net, how, origin):
    torch.manual_seed(0)
    if isinstance(net, nn.Sequential):
        net[0].bias.data.fill_(-1)
    optimizer = given(net)
    step(nn.Linear(4, 1), optimizer)
    step(net, optimizer, **how)
    found = last(recorded)
    assert (found.origin, found.module) == origin


def test_code_between_modules(recorded):
    net = Pooled()
    optimizer = given(net)
    step(net, optimizer)
    net.over = torch.tensor(0.0)
    step(net, optimizer)
    found = last(recorded)
    assert (found.origin, found.module) == ("code", "down")


def test_modules_that_make_infinite_numbers_by_right(recorded):
    net = Masked()
    optimizer = given(net)
    for over in (1.0, torch.tensor(0.0)):
        step(net, optimizer, scored=lambda made: made.softmax(-1).square().sum() * 0, over=over)
    found = last(recorded)
    assert (found.is_nan, found.origin) == (True, "later")


def test_the_same_where_no_finite_loss_is_known_yet(recorded):
    net = Masked()
    step(net, given(net), scored=lambda made: made.softmax(-1).square().sum() * 0, over=torch.tensor(0.0))
    assert last(recorded).origin == "unseen"


def test_a_forward_in_evaluation_mode_is_not_looked_at(recorded):
    net = nn.Linear(4, 1).eval()
    step(net, given(net), inputs=torch.full((2, 4), NAN))
    assert last(recorded).origin == "unseen"


def test_only_forwards_of_windows_that_are_looked_at(recorded, monkeypatch):
    net = nn.Linear(4, 1)
    optimizer = given(net)
    monkeypatch.setattr(windows, "is_looked_at", lambda: False)
    step(net, optimizer, inputs=torch.full((2, 4), NAN))
    assert last(recorded).origin == "unseen"


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32, torch.float64])
def test_numbers_of_every_width(dtype):
    large = torch.full((70, 1000), torch.finfo(dtype).max / 2, dtype=dtype)
    forwards = forward_values.Forwards()
    forwards.add([large, large.index_fill(0, torch.tensor(3), NAN), -large / 0.0, torch.ones(0), torch.arange(3)])
    first, second, third = forwards.numbers
    assert math.isfinite(first)
    assert math.isnan(second)
    assert math.isinf(third)


def test_nothing_of_a_forward_is_kept(recorded):
    """Neither a module nor a tensor, once its loss is known."""
    net = Pooled()
    step(net, given(net))
    assert forward_values.NOW is None
    assert all(not isinstance(one, torch.Tensor) for loss in losses._seen.waiting for one in loss.forwards.numbers)
