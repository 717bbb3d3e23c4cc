"""What modules have read and made, of models that nobody speaks for; and the parameters that lie in a flat tensor."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import nn

from ddpcheck import evidence as ev
from ddpcheck.probes.moments import flat_parameters, module_values
from tests.probes.alone.moments import _from_the_start as _from_the_start


@pytest.fixture(autouse=True)
def _nothing_before(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(module_values, "_written", type(module_values._written)())
    module_values.forget()
    yield
    module_values.forget()


def trained(net: nn.Module, steps: int = 1, micro: int = 1) -> None:
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    for _ in range(steps):
        optimizer.zero_grad()
        for _ in range(micro):
            result: Any = net(torch.randn(5, 4))
            getattr(result, "value", result).square().mean().backward()
        optimizer.step()


def net() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 3), nn.Tanh(), nn.Linear(3, 3), nn.LayerNorm(3))


def calls(recorded: Any) -> list[list[tuple[str, bytes, bytes]]]:
    """By backward(), each call with what it has read and made."""
    names: list[str] = []
    found = []
    for one in recorded(ev.ModuleValues):
        names = one.modules or names
        digests = [[side[at : at + 8] for at in range(0, len(side), 8)] for side in (one.read, one.made)]
        found.append([(names[place], *value) for place, *value in zip(one.places, *digests, strict=True)])
    return found


def test_modules_with_parameters_are_looked_at_in_their_order(recorded):
    trained(net())
    (first,) = calls(recorded)
    assert [name for name, _, _ in first] == ["0", "2", "3"]
    # What one has made, the next one reads, where nothing is between.
    assert first[1][2] == first[2][1]
    assert first[0][2] != first[1][1]


def test_the_first_backward_alone(recorded):
    trained(net(), steps=3, micro=2)
    assert len(calls(recorded)) == 1
    assert not module_values.LOOKED_AT


def test_each_model_and_each_file_has_its_own(recorded, monkeypatch):
    trained(net())
    trained(net())
    assert len(calls(recorded)) == 2
    monkeypatch.setattr(module_values, "_written", type(module_values._written)())  # as of another file
    model = net()
    trained(model)
    assert all(one.modules for one in recorded(ev.ModuleValues))


class Lazy(dict):  # type: ignore[type-arg]
    """Computes what it is asked for, once."""

    def values(self) -> Any:
        raise AssertionError("nobody asks")

    def __iter__(self) -> Any:
        raise AssertionError("nobody asks")


def test_what_a_class_of_the_programs_holds_is_not_asked_for(recorded):
    class Made(nn.Linear):
        def forward(self, input: torch.Tensor) -> Any:
            return Lazy(value=super().forward(input))

    class Around(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.made, self.head = Made(4, 3), nn.Linear(3, 2)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.head(self.made(x)["value"])

    trained(Around())
    (first,) = calls(recorded)
    assert [name for name, _, _ in first] == ["head"]


def test_evaluation_is_no_forward_of_a_window(recorded):
    with torch.no_grad():
        net()(torch.randn(5, 4))
    assert calls(recorded) == []


class Odd(nn.Module):
    """Returns what is no tensor, changes what it reads, and calls itself."""

    def __init__(self, deep: int = 3) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(4, 4))
        self.deep = deep

    def forward(self, x: Any, level: int = 0) -> Any:
        x = x.clone().mul_(2) @ self.weight
        return Made(x, None) if level == self.deep else self(x, level + 1)


@dataclass
class Made:
    value: torch.Tensor
    more: Any


def test_odd_results_and_calls_of_itself_are_left_alone(recorded):
    class Around(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.odd = Odd()

        def forward(self, x: torch.Tensor) -> Any:
            return self.odd(x)

    torch.manual_seed(1)
    around, plain = Around(), Odd()
    x = torch.randn(5, 4)
    result = around(x)
    assert torch.equal(result.value, plain(x).value)
    assert result.more is None
    result.value.sum().backward()


def test_a_module_that_raises_raises_as_it_would(recorded):
    class Fails(nn.Linear):
        def forward(self, input: torch.Tensor) -> torch.Tensor:
            raise ZeroDivisionError("as it would")

    around = nn.Sequential(nn.Linear(4, 3), Fails(3, 2))
    with pytest.raises(ZeroDivisionError, match="as it would"):
        around(torch.randn(5, 4))
    trained(nn.Sequential(nn.Linear(4, 3), nn.Linear(3, 2)))
    assert all(len(one) == 2 for one in calls(recorded)[-1:])


def test_the_parameters_that_lie_in_a_flat_tensor(recorded):
    model = nn.Sequential(nn.Linear(4, 3), nn.Linear(3, 2))
    flat = torch.cat([one.detach().flatten() for one in model.parameters()])
    at = 0
    for one in model.parameters():
        one.data = flat[at : at + one.numel()].view_as(one)
        at += one.numel()
    found = flat_parameters.in_memory(flat[10:20], [(7, model)])
    assert [(cut.model, cut.path, cut.begin, cut.run.start, cut.run.stop) for cut in found] == [
        (7, "0.weight", 10, 0, 2),
        (7, "0.bias", 0, 2, 5),
        (7, "1.weight", 0, 5, 10),
    ]
    assert flat_parameters.in_memory(torch.zeros(10), [(7, model)]) == []
    assert flat_parameters.in_memory(flat.clone(), [(7, model)]) == []


def test_an_optimizer_of_a_flat_tensor_steps_the_parameters_in_it(recorded):
    model = nn.Sequential(nn.Linear(4, 3), nn.Linear(3, 2))
    flat = nn.Parameter(torch.cat([one.detach().flatten() for one in model.parameters()]))
    at = 0
    for one in model.parameters():
        one.data = flat.data[at : at + one.numel()].view_as(one)
        at += one.numel()
    optimizer = torch.optim.SGD([flat], lr=0.1)
    model(torch.randn(5, 4)).square().mean().backward()
    flat.grad = torch.cat([one.grad.flatten() for one in model.parameters() if one.grad is not None])
    optimizer.step()
    runs = [one for record in recorded(ev.Pieces) for one in record.pieces if one.is_run]
    assert [(one.path, one.sizes, one.offset) for one in runs] == [
        ("0.weight", (12,), (0,)), ("0.bias", (3,), (0,)), ("1.weight", (6,), (0,)), ("1.bias", (2,), (0,)),
    ]  # fmt: skip
