"""Autograd on simulated devices: its engine, hooks of users, and gradients that are where their tensors are."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from ddpcheck.device_simulation import torch_messages
from ddpcheck.device_simulation.operator_dispatch import Dispatching
from ddpcheck.device_simulation.storages import Storages, floating
from ddpcheck.device_simulation.temporary_patches import Patches
from ddpcheck.device_simulation.torch_functions import Calling, function_modes

Move = Callable[[Tensor, torch.device], Tensor]


@contextmanager
def seen(calling: Calling) -> Iterator[None]:
    """Inside, calls of this thread are seen: the call of a tensor's method hides the mode meanwhile."""
    if calling in function_modes():
        yield
    else:
        with calling:
            yield


def patch_engine(patches: Patches, dispatching: Dispatching, calling: Calling) -> None:
    """Hooks and functions of users see devices in a backward too; what the engine makes for itself lies anywhere."""
    storages = dispatching.storages

    def wrapped(run: Callable[..., Any]) -> Callable[..., Any]:
        def run_backward(roots: Any, gradients: Any, *args: Any, **kwargs: Any) -> Any:
            gradients = _roots_gradients(storages, calling.moved, roots, gradients)
            leaves = _leaves(roots)
            with dispatching.torch_makes(floating), seen(calling):
                result = run(roots, gradients, *args, **kwargs)
            for leaf, function, position in leaves:
                _check_leaf(storages, calling.moved, leaf, function, position)
            return result

        return run_backward

    for owner in (torch.autograd, torch.autograd.graph):
        run = getattr(owner, "_engine_run_backward", None)
        if run is not None:
            patches.set(owner, "_engine_run_backward", wrapped(run))


def _roots_gradients(storages: Storages, moved: Move, roots: Sequence[Any], gradients: Sequence[Any]) -> Any:
    """The gradients that a backward begins with; a scalar comes along from any device, as in torch's engine."""
    found = []
    for position, (root, gradient) in enumerate(zip(roots, gradients, strict=False)):
        if isinstance(root, Tensor) and isinstance(gradient, Tensor):
            device, there = storages.device_of(root), storages.place_of(gradient)
            if isinstance(there, torch.device) and there != device:
                if gradient.dim():
                    raise RuntimeError(torch_messages.invalid_gradient("", position, str(device), str(there)))
                gradient = moved(gradient, device)
        found.append(gradient)
    return tuple(found)


def _leaves(roots: Sequence[Any]) -> list[tuple[Tensor, str, int]]:
    """The tensors that will have a gradient, each with the function whose result it is, and at which place of it."""
    with torch._C.DisableTorchFunction():
        waiting: list[Any] = [
            root.grad_fn if isinstance(root, Tensor) else getattr(root, "node", root) for root in roots
        ]
        waiting = [node for node in waiting if node is not None]  # a leaf has no function
        known, found = set(waiting), []
        while waiting:
            node = waiting.pop()
            for position, (following, _) in enumerate(getattr(node, "next_functions", ())):
                if following is None or following in known:
                    continue
                known.add(following)
                leaf = getattr(following, "variable", None)
                if isinstance(leaf, Tensor):
                    found.append((leaf, node.name(), position))
                else:
                    waiting.append(following)
        return found


def _check_leaf(storages: Storages, moved: Move, leaf: Tensor, function: str, position: int) -> None:
    with torch._C.DisableTorchFunction():
        gradient = leaf.grad
        if gradient is None:
            return
        device, there = storages.device_of(leaf), storages.place_of(gradient)
        if not isinstance(there, torch.device) or there == device:
            return
        leaf.grad = moved(gradient, device) if gradient.dim() == 0 else None
    if leaf.grad is None:
        raise RuntimeError(
            torch_messages.invalid_gradient(f"Function {function} returned an ", position, str(device), str(there))
        )


def patch_hooks(patches: Patches, dispatching: Dispatching, calling: Calling) -> None:
    """Hooks see devices, and a gradient that a hook returns stays where it was."""
    original = torch.Tensor.register_hook
    saved = torch.autograd.graph.saved_tensors_hooks
    begin = saved.__init__

    def register_hook(tensor: Tensor, hook: Callable[..., Any]) -> Any:
        @functools.wraps(hook, updated=())
        def checked(gradient: Tensor) -> Any:
            result = hook(gradient)
            if isinstance(result, Tensor) and result.device != gradient.device:
                raise RuntimeError(
                    f"hook '{getattr(hook, '__name__', hook)}' has changed the type of value "
                    f"(was {gradient.type()} got {result.type()})"
                )
            return result

        return original(tensor, checked)  # type: ignore[no-untyped-call]

    def as_users(hook: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(hook, updated=())
        def called(*args: Any) -> Any:
            with dispatching.torch_makes(None), seen(calling):
                return hook(*args)

        return called

    def __init__(self: Any, pack_hook: Callable[..., Any], unpack_hook: Callable[..., Any]) -> None:
        begin(self, as_users(pack_hook), as_users(unpack_hook))

    patches.set(torch.Tensor, "register_hook", register_hook)
    patches.set(saved, "__init__", __init__)
