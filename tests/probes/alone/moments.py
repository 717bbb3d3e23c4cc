"""Which windows are looked at, what is noted in them, and that nothing of it stays with the program."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from ddpcheck import evidence as ev
from ddpcheck.facts import sketches
from ddpcheck.probes.collectives.exchange import Exchange
from ddpcheck.probes.moments import forward_modes, pieces, windows
from ddpcheck.probes.optimizers import gradient_events
from ddpcheck.probes.recording import pace
from ddpcheck.probes.recording.pace import Pace


@pytest.fixture(autouse=True)
def _from_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {
        "pace": Pace(first=windows.FIRST),
        "backwards": 0,
        "at_step": {},
        "steps": {},
        "all_steps": 0,
        "read": set(),
        "called": set(),
        "open": set(),
        "so_far": (-1, 0, []),
        "owned": windows.SteppedModels(),
    }.items():
        monkeypatch.setattr(windows._Windows, name, value, raising=False)
    for name in ("_calling", "_forwards"):
        monkeypatch.setattr(gradient_events, name, set())
    monkeypatch.setattr(gradient_events, "_optimizers", type(gradient_events._optimizers)())
    monkeypatch.setattr(pieces, "_known", {})
    for name in ("_since_backward", "_written"):
        monkeypatch.setattr(forward_modes, name, {})


def made(rate: float = 0.1) -> tuple[nn.Module, torch.optim.Optimizer]:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(4, 3), nn.Linear(3, 2))
    return net, torch.optim.SGD(net.parameters(), lr=rate)


def step(net: nn.Module, optimizer: torch.optim.Optimizer, micro: int = 1) -> None:
    optimizer.zero_grad()
    for _ in range(micro):
        net(torch.randn(5, 4)).square().mean().backward()
    optimizer.step()


def at(recorded: Any, moment: str) -> list[ev.Values]:
    return [record for record in recorded(ev.Values) if record.at_moment == moment]


def test_all_moments_of_a_window(recorded: Any) -> None:
    """As many numbers as there are pieces, and each those of the tensor at that moment."""
    net, optimizer = made()
    before = [p.detach().clone() for p in net.parameters()]
    step(net, optimizer, micro=2)
    (w,), (g,), (u,) = (at(recorded, moment) for moment in "WGU")
    (described,) = recorded(ev.Pieces)
    assert [one.path for one in described.pieces] == ["0.weight", "0.bias", "1.weight", "1.bias"]
    for record, tensors in ((w, before), (g, [p.grad for p in net.parameters()]), (u, net.parameters())):
        found = sketches.unpacked(record.sketches)
        assert found.tolist() == [pytest.approx(sketches.of(t.detach().double().numpy()).tolist()) for t in tensors]
    first, second = recorded(ev.Contributions)
    added = sketches.unpacked(first.sketches) + sketches.unpacked(second.sketches)
    by_piece = dict(zip(first.pieces, added.tolist(), strict=True))
    assert first.pieces == second.pieces
    for piece, row in zip(g.pieces, sketches.unpacked(g.sketches).tolist(), strict=True):
        assert by_piece[piece] == pytest.approx(row)
    assert (g.since, g.backwards, w.backwards, (first.backward, second.backward)) == ((0, 0), 2, 0, (1, 2))
    assert (w.optimizer, w.places, u.places) == (None, [-1] * 4, [0, 1, 2, 3])


def test_the_first_windows_and_then_multiples_of_a_power_of_two(recorded: Any, monkeypatch: Any) -> None:
    """Here every look is too dear."""
    monkeypatch.setattr(pace, "BUDGET", 1e-9)
    net, optimizer = made()
    for _ in range(600):
        step(net, optimizer)
    looked = [record.number for record in at(recorded, "G")]
    later = [number for number in looked if number >= windows.FIRST]
    assert looked[: windows.FIRST] == list(range(windows.FIRST))
    assert 0 < len(later) < 12
    assert [record.number for record in at(recorded, "U")] == looked
    assert len(recorded(ev.Contributions)) == len(looked) == len(at(recorded, "W"))


def test_the_file_stays_whole_whatever_the_size(recorded: Any, tmp_path: Path) -> None:
    """What there is no room for is not begun: the file does not come to its limit by it."""
    net = nn.Sequential(*(nn.Linear(2, 2) for _ in range(150)))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    for _ in range(12):
        net[0](torch.randn(3, 2)).sum().backward()
        optimizer.step()
        net(torch.randn(3, 2)).sum().backward()
    assert 0 < len(at(recorded, "G")) < 12
    assert recorded(ev.Contributions)
    (file,) = tmp_path.glob("*.evidence")
    assert file.read_bytes()[len(ev.HEADER) : len(ev.HEADER) + 1] == ev.GOING


def test_who_steps_no_more_is_not_looked_at(recorded: Any) -> None:
    """Though its next step would be: what it steps is not called, either."""
    step(*(idle := made()))
    mine = {one.piece for record in recorded(ev.Pieces) for one in record.pieces}
    net, optimizer = made()
    for _ in range(4):
        step(net, optimizer)
    assert len(recorded(ev.Contributions)) == 5
    assert not mine & {piece for record in recorded(ev.Contributions)[1:] for piece in record.pieces}
    assert idle


def test_two_that_train_against_each_other(recorded: Any) -> None:
    """A backward() through both contributes to both, also to what is not stepped on it."""
    generator, its = made()
    judge, optimizer = nn.Linear(2, 1), None
    optimizer = torch.optim.SGD(judge.parameters(), lr=0.1)
    for _ in range(2):
        made_up = generator(torch.randn(5, 4))
        optimizer.zero_grad()
        judge(made_up.detach()).mean().backward()
        optimizer.step()
        its.zero_grad()
        (-judge(made_up).mean()).backward()
        its.step()
    of_judge, of_both = recorded(ev.Contributions)[:2]
    assert (len(of_judge.pieces), len(of_both.pieces)) == (2, 6)
    assert [(g.optimizer, g.number, g.since[0], g.backwards) for g in at(recorded, "G")] == [
        (gradient_events.number_of(one), number, since, now)
        for number, (one, since, now) in zip(
            (0, 0, 1, 1), ((optimizer, 0, 1), (its, 0, 2), (optimizer, 1, 3), (its, 2, 4)), strict=True
        )
    ]


@pytest.mark.parametrize(
    ("elements", "after"), [(7, {"0.weight": 1, "0.bias": 1, "1.weight": 0, "1.bias": 0}), (6, None), (4, None)]
)
def test_what_is_exchanged_within_a_backward(recorded: Any, elements: int, after: dict[str, int] | None) -> None:
    """Before a gradient comes to the parameters in front of it; not what is a gradient or a few numbers."""

    class Exchanged(torch.autograd.Function):
        @staticmethod
        def forward(_: Any, x: torch.Tensor) -> torch.Tensor:
            tell()
            return x.clone()

        @staticmethod
        def backward(_: Any, g: torch.Tensor) -> torch.Tensor:  # type: ignore[override]
            tell()
            return g

    def tell() -> None:
        tensor = net[1].weight.grad if elements == 6 else torch.ones(elements)
        gradient_events.EXCHANGED.tell(Exchange("all_reduce", {"tensors": [tensor]}), "world")

    net, optimizer = made()
    net[1].register_forward_pre_hook(lambda _, given: Exchanged.apply(given[0]))
    step(net, optimizer)
    (one,), (described,) = recorded(ev.Contributions), recorded(ev.Pieces)
    paths = {piece.piece: piece.path for piece in described.pieces}
    assert one.calls == ([("all_reduce", "world", None)] if after is not None else [])
    assert dict(zip(map(paths.__getitem__, one.pieces), one.after, strict=False)) == (after or {})


def test_gradients_that_are_asked_for(recorded: Any) -> None:
    net, optimizer = made()
    gradients = torch.autograd.grad(net(torch.randn(5, 4)).square().mean(), list(net.parameters()))
    for p, gradient in zip(net.parameters(), gradients, strict=True):
        p.grad = gradient
    optimizer.step()
    (one,), (g,) = recorded(ev.Contributions), at(recorded, "G")
    assert (one.how, one.backward, g.backwards) == ("grad", 1, 1)
    assert sorted(sketches.unpacked(one.sketches).tolist()) == sorted(sketches.unpacked(g.sketches).tolist())


def test_a_batch_of_gradients_is_no_contribution(recorded: Any) -> None:
    """They have a dimension more than the parameter. An iterator of inputs is left alone, too."""
    net, _ = made()
    outputs, parameters = net(torch.randn(5, 4)), list(net.parameters())
    torch.autograd.grad(outputs, parameters, torch.ones(3, 5, 2), is_grads_batched=True, retain_graph=True)
    torch.autograd.grad(outputs.sum(), iter(parameters))
    assert recorded(ev.Contributions) == recorded(ev.Defect) == []


class Failing(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return x.clone()

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
        raise ValueError("no gradient")


def test_a_backward_that_fails_leaves_no_hook(recorded: Any) -> None:
    """What it has contributed until then is of no step."""
    net, optimizer = made()
    kept = [torch.autograd.graph.get_gradient_edge(p).node for p in net.parameters()]
    with pytest.raises(ValueError, match="no gradient"):
        Failing.apply(net(torch.randn(5, 4))).square().mean().backward()
    failed = windows._contributed
    assert failed is not None
    assert len(failed.handles) == len(kept) == 4
    step(net, optimizer)
    (one,) = recorded(ev.Contributions)
    assert (one.backward, len(one.pieces)) == (2, 4)
    assert (failed.handles, failed.nodes, windows._contributed) == ([], [], None)


def test_nothing_stays_with_parameters(recorded: Any) -> None:
    """Neither while the program computes, nor later."""
    net, optimizer = made()
    seen = []
    net.register_forward_hook(lambda *_: seen.extend(p._backward_hooks for p in net.parameters()))
    step(net, optimizer)
    assert [*seen, *(p._backward_hooks for p in net.parameters())] == [None] * 8


def test_a_program_of_several_threads_is_not_looked_at(recorded: Any) -> None:
    """Whose backward it is cannot be told."""
    net, optimizer = made()
    step(net, optimizer)
    other = threading.Thread(target=lambda: step(*made()))
    other.start()
    other.join()
    before = len(recorded(ev.Contributions))
    step(net, optimizer)
    assert len(recorded(ev.Contributions)) == before


def test_what_has_no_sketch_has_no_number(recorded: Any) -> None:
    """Complex numbers have none; all else that is beside them has."""
    net = nn.Linear(4, 2)
    net.turn = nn.Parameter(torch.ones(2, dtype=torch.complex64))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    (net(torch.randn(3, 4)).square().mean() + (net.turn.abs() ** 2).sum()).backward()
    optimizer.step()
    (w,), (one,) = at(recorded, "W"), recorded(ev.Contributions)
    known = {piece: row[0] == row[0] for piece, row in zip(w.pieces, sketches.unpacked(w.sketches), strict=True)}
    paths = {piece.piece: piece.path for record in recorded(ev.Pieces) for piece in record.pieces}
    assert {paths[piece]: there for piece, there in known.items()} == {"weight": True, "bias": True, "turn": False}
    assert {paths[piece] for piece in one.pieces} == {"weight", "bias"}


def test_a_parameter_of_another_shape_is_another_piece(recorded: Any) -> None:
    net, optimizer = made()
    step(net, optimizer)
    net[1].weight.data = torch.randn(2, 3).repeat(2, 1)
    net[1].bias.data = torch.randn(4)
    step(net, optimizer)
    first, second = recorded(ev.Pieces)
    assert [one.shape for one in second.pieces] == [(4, 3), (4,)]
    assert len({one.piece for record in (first, second) for one in record.pieces}) == 6


@pytest.mark.parametrize(("error", "told"), [(ValueError("ours"), ev.Defect), (MemoryError(), ev.Overlooked)])
def test_a_look_that_fails_is_not_the_programs(recorded: Any, monkeypatch: Any, error: Exception, told: Any) -> None:
    """It trains on, and the failure is on record; want of memory is none."""
    before, optimizer = made()
    step(before, optimizer)

    def fails(*_: Any) -> None:
        raise error

    monkeypatch.setattr(windows.Held, "sketch", fails)
    net, optimizer = made()
    step(net, optimizer)
    assert all(torch.equal(a, b) for a, b in zip(before.parameters(), net.parameters(), strict=True))
    assert recorded(told)


# --- the mode of the forwards


def test_the_mode_of_each_backward(recorded: Any) -> None:
    """Names once; what ran without gradients is no mode of a step."""
    net, optimizer = made()
    net[1].bias.requires_grad_(False)
    step(net, optimizer, micro=2)
    net.eval()
    with torch.no_grad():
        net(torch.randn(5, 4))
    step(net, optimizer)
    first, second, third = recorded(ev.Modes)
    assert (first.modules, first.parameters) == (["", "0", "1"], ["0.weight", "0.bias", "1.weight", "1.bias"])
    assert (second.modules, third.modules) == ([], [])
    assert [list(one.training) for one in (first, second, third)] == [[1, 1, 1], [1, 1, 1], [0, 0, 0]]
    assert list(first.trained) == [1, 1, 1, 0]
    assert [one.backward for one in (first, second, third)] == [1, 2, 3]
    assert not any(one.several for one in (first, second, third))


def test_forwards_in_two_modes_before_one_backward(recorded: Any) -> None:
    net, optimizer = made()
    step(net, optimizer)
    net(torch.randn(5, 4))
    net[0].eval()
    step(net, optimizer)
    step(net, optimizer)
    assert [one.several for one in recorded(ev.Modes)] == [False, True, False]


def test_a_forward_without_a_backward_says_nothing_of_later_ones(recorded: Any) -> None:
    net, optimizer = made()
    step(net, optimizer)
    net.eval()
    net(torch.randn(5, 4))
    optimizer.step()
    net.train()
    step(net, optimizer)
    assert [(list(one.training), one.several) for one in recorded(ev.Modes)] == [([1, 1, 1], False)] * 2


def test_modes_of_windows_that_are_not_looked_at(recorded: Any) -> None:
    net, optimizer = made()
    for _ in range(windows.FIRST + 2):
        step(net, optimizer)
    assert {one.backward for one in recorded(ev.Modes)} <= {one.backward for one in recorded(ev.Contributions)}


def test_what_is_recomputed_is_no_forward_of_its_own(recorded: Any) -> None:
    """It runs within backward(), in whatever mode the module is by then."""
    net, optimizer = made()
    for training in (True, False):
        outputs = checkpoint(net, torch.randn(3, 4, requires_grad=True), use_reentrant=False)
        net.train(training)
        outputs.sum().backward()
        optimizer.step()
    assert [(list(one.training), one.several) for one in recorded(ev.Modes)] == [([1, 1, 1], False)] * 2


def test_a_class_that_is_told_of_each_operation_is_told_of_the_programs_alone(recorded: Any) -> None:
    """Where nobody looks, it is told the same."""
    told: list[list[str]] = [[]]

    class Told(torch.Tensor):
        @classmethod
        def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            told[-1].append(str(func))
            with torch._C._DisableTorchDispatch():
                result = func(*(a.as_subclass(torch.Tensor) if isinstance(a, cls) else a for a in args), **kwargs or {})
            return result.as_subclass(cls) if type(result) is torch.Tensor else result

    class Product(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.ones(4, 4).as_subclass(Told))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x @ self.weight

    net, optimizer = Product(), torch.optim.SGD([nn.Parameter(torch.ones(1))], lr=0.1)
    for number in range(2 * windows.FIRST):
        windows._Windows.pace.stride = 1 << 10 if number >= windows.FIRST else 1
        told.append([])
        net.weight.grad = None
        net(torch.randn(2, 4)).sum().backward()
        optimizer.step()
    assert told[1:] == [told[-1]] * (len(told) - 1)
    assert told[-1]


def test_a_step_on_no_gradient_is_on_record(recorded: Any) -> None:
    """A window in which something was contributed, and nothing was there to step on."""
    net, optimizer = made()
    net(torch.randn(5, 4)).square().mean().backward()
    optimizer.zero_grad()
    optimizer.step()
    moments = {one.at_moment: one.pieces for one in recorded(ev.Values)}
    assert moments["G"] == []
    assert moments["U"]
    assert recorded(ev.Contributions)
