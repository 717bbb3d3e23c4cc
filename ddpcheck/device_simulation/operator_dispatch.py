"""Every operator that torch runs, whoever asks for it: are its tensors where it needs them, and where is its result?"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from ddpcheck.device_simulation import torch_messages
from ddpcheck.device_simulation.collective_rules import NAMESPACES, Groups, group_of
from ddpcheck.device_simulation.errors import NotSimulated, version
from ddpcheck.device_simulation.operator_rules import Operator, operators
from ddpcheck.device_simulation.placement_rules import Operand, refusal
from ddpcheck.device_simulation.storages import CPU, FLOATING, Floating, Place, Shared, Storages, floating, key_of

DEFAULT = Operator("same", "")


class _State(threading.local):
    """What a thread is about."""

    within_torch: Callable[[], Place] | None = None
    """Says where a new tensor lies that torch makes for itself; None while user code makes tensors."""
    checking: bool = True
    """Whether operators are looked at."""


class Dispatching(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """The rules of devices over all operators of this thread, those of autograd and of torch's own C++ included.

    ``resolve`` turns whatever names a device into one that exists.
    """

    def __init__(self, storages: Storages, resolve: Callable[[Any], torch.device]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        # Without a mode of this key, torch asks for a GPU's driver before it hands us a factory with a CUDA device.
        self._mode_key = torch._C._TorchDispatchModeKey.FAKE
        self.storages = storages
        self.resolve = resolve
        self._state = _State()
        self.on = True
        """Cleared when the simulation is over: a thread that was started inside may live on."""
        self.groups = Groups()
        self._table = operators()
        self._version = version()

    @contextmanager
    def torch_makes(self, place: Callable[[], Place] | None) -> Iterator[None]:
        """Inside, tensors made without a word about their device are torch's own and lie there (None: a user's)."""
        before, self._state.within_torch = self._state.within_torch, place
        try:
            yield
        finally:
            self._state.within_torch = before

    @contextmanager
    def unchecked(self) -> Iterator[None]:
        """Inside, torch moves bytes and misplaces nothing, though it may join tensors of several devices."""
        before, self._state.checking = self._state.checking, False
        try:
            yield
        finally:
            self._state.checking = before

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        if not self.on:
            return func(*args, **(kwargs or {}))
        # A look at a tensor from here is nothing that a function mode should see.
        with torch._C.DisableTorchFunction():
            return self._dispatch(func, args, dict(kwargs or {}))

    def _dispatch(self, func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        tensors = list(tensors_in(args))
        tensors.extend(tensors_in(kwargs.values()))
        wanted = kwargs.get("device")
        if isinstance(wanted, torch.device) and wanted.type == "cuda":
            target: Place = self.resolve(wanted)
            result = func(*args, **{**kwargs, "device": CPU})
            self._settle(result, target, ())
            return result
        if func.namespace in NAMESPACES and self._state.checking:
            self._check_collective(func, args, tensors)
        if func.namespace == "c10d" or not tensors:
            result = func(*args, **kwargs)
            if not tensors and self._state.within_torch is not None:
                self._settle(result, self._state.within_torch(), ())
            return result
        places = [self.storages.place_of(tensor) for tensor in tensors]
        devices = {place for place in places if isinstance(place, torch.device)}
        generator = kwargs.get("generator")
        kinds = {device.type for device in devices}
        if generator is not None and self._state.checking and kinds and generator.device.type not in kinds:
            raise RuntimeError(torch_messages.wrong_generator(kinds.pop(), generator.device.type))
        if len(devices) <= 1 or not self._state.checking:
            device: Place = next(iter(devices)) if len(devices) == 1 else FLOATING
        else:
            device = next((p for p in places if isinstance(p, torch.device) and p.type == "cuda"), CPU)
            name = func.__name__ if not func.__name__.endswith(".default") else func.overloadpacket.__name__
            if self._is_made_of_others(func):
                return self._run_decomposed(func, args, kwargs, device)
            self._check(name, func, args, kwargs)
            if name in _WRITTEN_AT_INDICES:
                device = places[0]
        return self._run(func, args, kwargs, tensors, places, device)

    def _run(
        self,
        func: Any,
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        tensors: Sequence[Tensor],
        places: Sequence[Place],
        device: Place,
    ) -> Any:
        before = {key_of(tensor) for tensor in tensors}
        name = func.overloadpacket.__name__
        if name in _SIDE_BY_SIDE:
            result = func(*args, **kwargs)
            if name == "_to_copy":
                self._settle(result, places[0], before)
            return result
        try:
            result = func(*args, **kwargs)
        except NotImplementedError as error:
            if device != CPU and str(error).startswith("Could not run "):
                raise NotSimulated(f"{name}, of which torch has a kernel for GPUs alone") from error
            raise
        if isinstance(device, torch.device):
            for tensor, place in zip(tensors, places, strict=True):
                if isinstance(place, Floating):
                    self.storages.put(tensor, device)
        if device == CPU and self._state.within_torch is None:
            return result
        if name != "set_":
            self._settle(result, device, before)
        return result

    def _settle(self, result: Any, place: Place, before: Any) -> None:
        """Put new results where they belong; what shares a storage with an argument is there already."""
        for tensor in tensors_in([result]):
            if not tensor.is_meta and key_of(tensor) not in before:
                self.storages.put(tensor, place)

    def _check_collective(self, func: Any, args: Sequence[Any], tensors: Sequence[Tensor]) -> None:
        places = [self.storages.place_of(tensor) for tensor in tensors]
        devices = [place for place in places if isinstance(place, torch.device)]
        message = self.groups.refusal(func.overloadpacket.__name__, group_of(args), devices)
        if message:
            raise RuntimeError(message)

    def _check(self, name: str, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        operator = self._table.get(name, DEFAULT)
        message = refusal(name, operator, self._operands(func, args, kwargs), self._version)
        if message:
            raise RuntimeError(message)

    def _operands(self, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[Operand]:
        found = []
        for position, argument in enumerate(func._schema.arguments):
            value = args[position] if position < len(args) else kwargs.get(argument.name)
            output = argument.kwarg_only and argument.alias_info is not None and argument.alias_info.is_write
            values = value if isinstance(value, (list, tuple)) else [value]
            for tensor in values:
                if isinstance(tensor, Tensor):
                    where = self.storages.place_of(tensor)
                    if isinstance(where, (Floating, Shared)):
                        continue
                    kind = torch._C.TensorBase.type(tensor).rpartition(".")[2]
                    found.append(Operand(argument.name, str(where), tensor.dim(), output, kind))
        return found

    def _is_made_of_others(self, func: Any) -> bool:
        """Whether torch runs an operator by way of others, so that theirs are the checks.

        Autograd takes most such operators apart before they come here; there is none in inference mode.
        """
        name = func._schema.name
        if func.overloadpacket.__name__ in _JUDGED_WHOLE or func._overloadname == "overrideable":
            return False
        qualified = f"{name}.{func._schema.overload_name}" if func._schema.overload_name else name
        has_kernel = torch._C._dispatch_has_kernel_for_dispatch_key
        return has_kernel(qualified, "CompositeImplicitAutograd") or (
            not has_kernel(qualified, "CPU") and has_kernel(qualified, "CompositeExplicitAutograd")
        )

    def _run_decomposed(self, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any], device: Place) -> Any:
        with self, self.torch_makes(floating):
            result = func.redispatch(torch._C.DispatchKeySet(torch._C.DispatchKey.CPU), *args, **kwargs)
        for tensor in tensors_in([result]):
            if isinstance(self.storages.place_of(tensor), Floating):
                self.storages.put(tensor, device)
        return result


_JUDGED_WHOLE = {
    "_to_copy",
    "convolution",
    "convolution_backward",
    "copy_",
    "fill_",
    "index_put",
    "index_put_",
    "set_",
}
"""Operators that we judge as such, though torch makes them of others: on the CPU they are made of other ones."""

_WRITTEN_AT_INDICES = {"_index_put_impl_", "_unsafe_index_put", "index_put", "index_put_"}
"""Operators whose result is where their first tensor is, though indices may come from another device."""

_SIDE_BY_SIDE = {"_foreach_copy_", "_to_copy", "copy_", "fill_"}
"""Operators whose tensors keep their devices, each its own."""


def tensors_in(values: Any) -> Iterator[Tensor]:
    """The tensors among an operator's arguments or results, lists searched."""
    for value in values:
        if isinstance(value, Tensor):
            yield value
        elif isinstance(value, (list, tuple)):
            yield from tensors_in(value)
