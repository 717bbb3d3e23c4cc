"""Entering a simulation and leaving it: what is refused, and that nothing of it is left."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import ddpcheck


@pytest.mark.parametrize(("n", "error"), [(0, ValueError), (-1, ValueError), (True, TypeError), ("2", TypeError)])
def test_wrong_number_of_devices(n: Any, error: type[Exception]) -> None:
    """A sentence names what was given."""
    with pytest.raises(error, match=r"takes a number of devices, 1 or more, not"):
        ddpcheck.simulated_devices(n)


def test_no_simulation_inside_of_another() -> None:
    """The second is refused, and the first goes on."""
    with ddpcheck.simulated_devices(2):
        with pytest.raises(RuntimeError, match=r"simulated_devices\(3\) was entered inside of simulated_devices\(2\)"):
            ddpcheck.simulated_devices(3).__enter__()
        assert torch.zeros(1, device="cuda:1").is_cuda


@ddpcheck.simulated_devices(2)
def test_decorator() -> None:
    """A function runs inside, each time anew."""
    assert torch.cuda.device_count() == 2
    assert torch.zeros(1, device="cuda").device == torch.device("cuda:0")


def test_everything_is_put_back() -> None:
    """Afterwards torch is as it was, also after an error, and tensors made inside are the CPU's."""
    before = _surface()
    with ddpcheck.simulated_devices(2):
        layer, x = nn.Linear(2, 2).to("cuda:1"), torch.ones(1, 2, device="cuda:1")
        y = layer(x)
        assert str(y.device) == "cuda:1"
    assert _surface() == before
    with pytest.raises(ZeroDivisionError), ddpcheck.simulated_devices(2):
        _ = 1 / 0
    assert _surface() == before
    assert {str(each.device) for each in (layer.weight, x, y)} == {"cpu"}
    y.sum().backward()
    assert x.numpy().tolist() == [[1.0, 1.0]]


def _surface() -> dict[str, Any]:
    owners = (torch, torch.Tensor, torch.UntypedStorage, torch.cuda, torch._C, torch.autograd, torch.autocast)
    owners += (torch.cuda.Stream, torch.cuda.Event, torch.nn.parallel.comm)
    found = {f"{owner!r}.{name}": value for owner in owners for name, value in vars(owner).items()}
    found["reducer"] = torch.distributed.Reducer
    found["modes"] = torch._C._len_torch_dispatch_stack(), torch._C._len_torch_function_stack()
    # What torch imports or notes down for itself on the way is no business of ours.
    return {name: value for name, value in found.items() if not isinstance(value, type(torch))}


def test_errors_outside_are_torchs_own() -> None:
    """torch's state in C++ is as before too: it asks for the driver, and does not find it."""
    if torch.cuda.is_available():
        pytest.skip("there is a GPU, and no error")
    message = _message_of(lambda: torch.zeros(1, device="cuda"))
    with ddpcheck.simulated_devices(1):
        torch.zeros(1, device="cuda")
        with torch.device("cuda"):
            torch.zeros(1)
    assert _message_of(lambda: torch.zeros(1, device="cuda")) == message


def _message_of(call: Callable[[], object]) -> str:
    with pytest.raises((RuntimeError, AssertionError)) as caught:
        call()
    return str(caught.value)


def test_other_threads() -> None:
    """A thread that is started inside is simulated too, and one that lives on is not, afterwards."""
    found: list[Any] = []

    def work() -> None:
        found.append(torch.zeros(2).to("cuda:1").device)
        try:
            torch.zeros(2, device="cuda:0") + torch.zeros(2, device="cuda:1")
        except RuntimeError as error:
            found.append(str(error))
        inside.set()
        over.wait()
        found.append((torch.zeros(2) + 1).device)

    inside, over = threading.Event(), threading.Event()
    thread = threading.Thread(target=work)
    with ddpcheck.simulated_devices(2):
        thread.start()
        inside.wait()
    over.set()
    thread.join()
    assert found[0] == torch.device("cuda:1")
    assert "cuda:0 and cuda:1!" in found[1]
    assert found[2] == torch.device("cpu")


def test_default_device_is_put_back() -> None:
    """A default that was set inside is gone afterwards."""
    with ddpcheck.simulated_devices(2):
        torch.set_default_device("cuda:1")
        assert torch.zeros(1).is_cuda
    assert str(torch.zeros(1).device) == "cpu"


def test_decorated_too_early() -> None:
    """A generator, a coroutine and a class are refused."""

    def generator() -> Any:
        yield

    async def coroutine() -> None: ...

    class Kind: ...

    for each in (generator, coroutine, Kind):
        with pytest.raises(TypeError, match="@simulated_devices"):
            ddpcheck.simulated_devices(1)(each)
