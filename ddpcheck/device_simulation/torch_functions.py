"""What user code asks of torch by name: factories with a device, ``.to``, ``.numpy``, ``.grad`` …"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._device import DeviceContext

from ddpcheck.device_simulation import torch_messages
from ddpcheck.device_simulation.calls_gpus_refuse import refusals
from ddpcheck.device_simulation.device_copies import keeper, mover
from ddpcheck.device_simulation.factories import FACTORIES, LIKE, NEW, SPARSE
from ddpcheck.device_simulation.operator_dispatch import Dispatching, tensors_in
from ddpcheck.device_simulation.storages import CPU, Floating, Shared, floating

Call = Callable[[Any, Sequence[Any], dict[str, Any]], Any]

RECURRENT = ["lstm", "gru", "rnn_relu", "rnn_tanh"]

function_modes: Any = torch.overrides._get_current_function_mode_stack
"""The modes of this thread that see calls, the innermost last."""


class Calling(TorchFunctionMode):
    """The surface of devices in this thread: calls that name a device, or that ask what differs between devices."""

    def __init__(self, dispatching: Dispatching) -> None:
        super().__init__()
        self._dispatching = dispatching
        self._storages = dispatching.storages
        self._resolve = dispatching.resolve
        self.moved = mover(self._storages)
        self._kept = keeper(self._storages, self.moved)
        self._handlers = dict(self._all_handlers())
        self._refusals = dict(refusals(self._storages))

    def __torch_function__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        kwargs = dict(kwargs or {})
        if not self._dispatching.on:
            return func(*args, **kwargs)
        try:
            handler, refuse = self._handlers.get(func), self._refusals.get(func)
        except TypeError:  # not hashable: none of ours
            handler = refuse = None
        if refuse:
            refuse(args, kwargs)
        if handler:
            return handler(func, args, kwargs)
        return self._plain(func, args, kwargs)

    def _all_handlers(self) -> Iterable[tuple[Any, Call]]:
        tensor: Any = torch.Tensor
        packing: Any = torch._VF
        for name in FACTORIES:
            if hasattr(torch, name):
                yield getattr(torch, name), self._factory
        for name in ("fftfreq", "rfftfreq"):
            yield getattr(torch.fft, name), self._factory
        for name in ("as_tensor", "asarray", "tensor"):
            yield getattr(torch, name), self._from_data
        for name in SPARSE:
            yield getattr(torch, name), self._sparse
        for name in LIKE:
            yield getattr(torch, name), self._factory_like
        for name in NEW:
            yield getattr(tensor, name), self._factory_like
        for name in RECURRENT:
            yield getattr(torch, name), self._recurrent
        yield torch.nn.functional.ctc_loss, self._ctc_loss
        yield torch.ctc_loss, self._ctc_loss
        yield torch.device, self._device
        yield tensor.to, self._to
        yield tensor.cuda, self._cuda
        yield tensor.cpu, self._cpu
        yield tensor.type, self._type
        yield tensor.type_as, self._type_as
        yield tensor.copy_, self._copy
        yield tensor.__setitem__, self._setitem
        yield tensor.pin_memory, self._pin_memory
        yield tensor.is_pinned, self._is_pinned
        yield tensor.share_memory_, self._share_memory
        yield packing._pad_packed_sequence, self._padded
        yield packing._pack_padded_sequence, self._padded
        yield tensor.grad.__get__, self._get_grad
        yield tensor.grad.__set__, self._set_grad
        yield tensor.data.__set__, self._set_data
        yield tensor.__deepcopy__, self._deepcopy

    # --- calls that name no device

    def _plain(self, func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        tensors = [value for value in args if isinstance(value, Tensor)]
        if torch.is_grad_enabled() and len(tensors) > 1:
            args = self._with_scalars_kept(func, args)
        with self._dispatching.torch_makes(floating):
            result = func(*args, **kwargs)
        self._settle(result, args, kwargs)
        return result

    def _with_scalars_kept(self, func: Any, args: Sequence[Any]) -> Sequence[Any]:
        scalars = [
            position
            for position, value in enumerate(args)
            if isinstance(value, Tensor)
            and value.requires_grad
            and value.dim() == 0
            and not (position == 0 and getattr(func, "__name__", "").endswith("_"))
        ]
        if not scalars:
            return args
        devices = {self._storages.device_of(value) for value in args if isinstance(value, Tensor)}
        if len(devices) < 2:
            return args
        return [self._kept(value) if position in scalars else value for position, value in enumerate(args)]

    def _settle(self, result: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> None:
        """What torch made for itself on the way and hands out is where its arguments were."""
        for tensor in tensors_in([result]):
            if isinstance(self._storages.place_of(tensor), Floating):
                devices = [self._storages.device_of(each) for each in tensors_in([args, list(kwargs.values())])]
                self._storages.put(tensor, next((device for device in devices if device.type == "cuda"), CPU))

    # --- factories

    def _factory(self, func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        return self._made(func, args, kwargs, self._default_device())

    def _factory_like(self, func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        if len(args) > 1 and isinstance(args[1], (torch.TypedStorage, torch.UntypedStorage)):
            return func(*args, **kwargs)  # ``new`` of a storage lies where that does, and takes no device
        return self._made(func, args, kwargs, self._storages.device_of(args[0] if args else kwargs["input"]))

    def _made(self, func: Any, args: Sequence[Any], kwargs: dict[str, Any], default: torch.device) -> Any:
        device = kwargs.pop("device", None)
        target = default if device is None else self._resolve(device)
        if target.type not in ("cpu", "cuda"):
            return func(*args, **kwargs, device=target)
        if kwargs.get("out") is not None:
            default = self._storages.device_of(kwargs["out"])
            result = func(*args, **kwargs)
            self._storages.put(result, default)
            return result
        generator = kwargs.get("generator")
        if generator is not None and generator.device.type != target.type:
            raise RuntimeError(torch_messages.wrong_generator(target.type, generator.device.type))
        pinned = kwargs.pop("pin_memory", False)
        with self._dispatching.torch_makes(None):
            result = func(*args, **kwargs, device=CPU)
        if pinned and target.type == "cuda":
            raise RuntimeError("Only dense CPU tensors can be pinned")
        self._storages.put(result, target)
        if pinned:
            self._storages.pin(result)
        return result

    def _from_data(self, func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        data = args[0] if args else kwargs.get("data", kwargs.get("obj"))
        device = kwargs.pop("device", None)
        given = isinstance(data, Tensor)
        default = self._storages.device_of(data) if isinstance(data, Tensor) else self._default_device()
        target = default if device is None else self._resolve(device)
        if target.type not in ("cpu", "cuda"):
            return func(*args, **kwargs, device=target)
        kwargs.pop("pin_memory", False)
        with self._dispatching.torch_makes(None):
            result: Tensor = func(*args, **kwargs, device=CPU)
        if given and func is not torch.tensor:
            return result if default == target else self.moved(result, target)
        if func is not torch.tensor and target.type == "cuda":
            result = result.clone()  # what shares an array's memory on the CPU is a copy on a GPU
        self._storages.put(result, target)
        return result

    def _sparse(self, func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        """It is where its values are, and its indices are there too."""
        device = kwargs.pop("device", None)
        given = 2 if func is torch.sparse_coo_tensor else 3
        if len(args) >= given:
            args = [*map(torch.as_tensor, args[:given]), *args[given:]]
        parts = [value for value in (*args, *kwargs.values()) if isinstance(value, Tensor)]
        devices = [self._storages.device_of(part) for part in parts]
        if device is None and len(set(devices)) > 1:
            raise RuntimeError(f"device of indices ({devices[0]}) must match device of values ({devices[-1]})")
        target = self._resolve(device) if device is not None else (devices or [self._default_device()])[0]
        if target.type not in ("cpu", "cuda"):
            return func(*args, **kwargs, device=target)

        def there(value: Any) -> Any:
            if isinstance(value, Tensor) and self._storages.device_of(value) != target:
                return self.moved(value, target)
            return value

        with self._dispatching.torch_makes(lambda: target):
            return func(*map(there, args), **{name: there(value) for name, value in kwargs.items()})

    def _default_device(self) -> torch.device:
        """What ``with torch.device(…)`` and ``torch.set_default_device`` say."""
        # torch.get_default_device() of older versions fails once a default has been taken back.
        for mode in reversed(function_modes()):
            if isinstance(mode, DeviceContext):
                return self._resolve(mode.device)
        return CPU

    def _device(self, func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        if len(args) == 1 and not kwargs and isinstance(args[0], int) and not isinstance(args[0], bool):
            return func("cuda", args[0])
        return func(*args, **kwargs)

    # --- from one device to another

    def _to(self, func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        tensor, *rest = args
        target: torch.device | None = None
        if "device" in kwargs:
            device = kwargs.pop("device")
            target = None if device is None else self._resolve(device)
        elif "other" in kwargs:
            other = kwargs.pop("other")
            target = self._storages.device_of(other)
            kwargs["dtype"] = other.dtype
        elif rest and isinstance(rest[0], Tensor):
            other = rest.pop(0)
            target = self._storages.device_of(other)
            rest.insert(0, other.dtype)
        elif rest and not isinstance(rest[0], torch.dtype):
            device = rest.pop(0)
            target = None if device is None else self._resolve(device)
            if rest and rest[0] is None:
                rest.pop(0)
                kwargs.update(zip(("non_blocking", "copy"), rest, strict=False))
                rest = []
            elif rest and isinstance(rest[0], bool):
                kwargs.update(zip(("non_blocking", "copy"), rest, strict=False))
                rest = []
        if target is not None and target.type not in ("cpu", "cuda"):
            return func(tensor, *rest, **kwargs, device=target) if not rest else func(tensor, target, *rest, **kwargs)
        if target is None or target == self._storages.device_of(tensor):
            return func(tensor, *rest, **kwargs) if rest or kwargs else tensor
        kwargs.pop("copy", None)
        result = self.moved(tensor, target)
        with self._dispatching.torch_makes(floating):
            return func(result, *rest, **kwargs) if rest or set(kwargs) - {"non_blocking"} else result

    def _cuda(self, func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        tensor, *rest = args
        device = kwargs.get("device", rest[0] if rest else None)
        target = self._resolve("cuda" if device is None else device)
        if target.type != "cuda":
            raise RuntimeError("Invalid device, must be cuda device")
        return tensor if target == self._storages.device_of(tensor) else self.moved(tensor, target)

    def _cpu(self, func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        return args[0] if self._storages.device_of(args[0]) == CPU else self.moved(args[0], CPU)

    def _type(self, func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        device = self._storages.device_of(args[0])
        wanted = kwargs.pop("dtype", args[1] if len(args) > 1 else None)
        if wanted is None:
            name: str = func(args[0])
            return name.replace("torch.", "torch.cuda.", 1) if device.type == "cuda" else name
        if isinstance(wanted, torch.dtype):
            return func(args[0], wanted)
        name = wanted if isinstance(wanted, str) else f"{wanted.__module__}.{wanted.__name__}"
        target = self._resolve("cuda") if name.startswith("torch.cuda.") else CPU
        if target.type == device.type:
            target = device
        result = args[0] if target == device else self.moved(args[0], target)
        return func(result, name.replace("torch.cuda.", "torch.", 1))

    def _type_as(self, func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        return self._to(torch.Tensor.to, [args[0], kwargs.get("other", args[-1])], {})

    def _copy(self, func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        if "src" in kwargs:
            args = [args[0], kwargs.pop("src")]
        return self._plain(func, self._with_value_there(args, 1), kwargs)

    def _setitem(self, func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        index = args[1] if isinstance(args[1], tuple) else (args[1],)
        if not any(isinstance(each, (Tensor, list)) and not _is_plain_number(each) for each in index):
            args = self._with_value_there(args, 2)
        return self._plain(func, args, kwargs)

    def _with_value_there(self, args: Sequence[Any], position: int) -> Sequence[Any]:
        """A copy across devices, as a move and a copy: so that the gradient finds its way back."""
        target, value = args[0], args[position]
        if not isinstance(value, Tensor):
            return args
        device = self._storages.place_of(target)
        source = self._storages.place_of(value)
        if device == source or not (isinstance(device, torch.device) and isinstance(source, torch.device)):
            return args
        if "meta" in (device.type, source.type):
            return args
        return [*args[:position], self.moved(value, device), *args[position + 1 :]]

    # --- what is different on a GPU

    def _pin_memory(self, func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        tensor: Tensor = args[0]
        if self._storages.device_of(tensor).type == "cuda":
            raise RuntimeError(
                f"cannot pin '{self._type(torch.Tensor.type, [tensor], {})}' only dense CPU tensors can be pinned"
            )
        pinned = tensor if self._storages.is_pinned(tensor) else tensor.clone()
        self._storages.pin(pinned)
        return pinned

    def _is_pinned(self, func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        return self._storages.is_pinned(args[0])

    def _share_memory(self, func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        return args[0] if self._storages.device_of(args[0]).type == "cuda" else func(*args, **kwargs)

    def _padded(self, func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        result = self._plain(func, args, kwargs)
        self._storages.put(result[1], CPU)  # the lengths of sequences stay on the CPU
        return result

    def _ctc_loss(self, func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        # Lengths are read on the CPU, wherever they are. Beside a mode torch would compute with them as tensors.
        def read(value: Any) -> Any:
            return value.tolist() if isinstance(value, Tensor) else value

        lengths = {name: read(value) for name, value in kwargs.items() if name.endswith("_lengths")}
        return self._plain(func, [*args[:2], *map(read, args[2:4]), *args[4:]], {**kwargs, **lengths})

    def _recurrent(self, func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        given, *others = args
        device = self._storages.device_of(given)
        # The hidden state comes first, and then the weights; lengths of packed sequences are integers.
        floating_point = [
            each for value in others if (each := [t for t in tensors_in([value]) if t.is_floating_point()])
        ]
        for kind, tensors in zip(("hidden", "parameter"), floating_point, strict=False):
            for tensor in tensors:
                other = self._storages.device_of(tensor)
                if other != device:
                    raise RuntimeError(torch_messages.wrong_hidden(kind, str(device), str(other)))
        return self._plain(func, args, kwargs)

    def _get_grad(self, func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        gradient = func(*args, **kwargs)
        if gradient is not None:
            place = self._storages.place_of(gradient)
            device = self._storages.device_of(args[0])
            if isinstance(place, Floating):
                self._storages.put(gradient, device)
            elif isinstance(place, Shared):
                place.tell(gradient.storage_offset(), gradient.numel(), device)
        return gradient

    def _set_grad(self, func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        tensor, gradient = args[0], args[1]
        if isinstance(gradient, Tensor):
            place = self._storages.place_of(gradient)
            device = self._storages.device_of(tensor)
            if isinstance(place, torch.device) and place != device and "meta" not in (place.type, device.type):
                raise RuntimeError(torch_messages.wrong_gradient(str(place), str(device)))
        return func(*args, **kwargs)

    def _set_data(self, func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        tensor, data = args
        if isinstance(data, Tensor) and self._storages.device_of(data) != self._storages.device_of(tensor):
            # A tensor that leaves its device forgets who waits for its gradient, DDP's hooks among them. Here it
            # stays on the CPU, so that we change what makes torch forget as well: the type, for a moment.
            other = torch.float64 if tensor.dtype != torch.float64 else torch.float32
            if tensor.requires_grad and tensor.is_leaf and not tensor.is_complex():
                func(tensor, torch.empty(0, dtype=other))
        return func(tensor, data)

    def _deepcopy(self, func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        result = func(*args, **kwargs)
        self._storages.put(result, self._storages.device_of(args[0]))
        return result


def _is_plain_number(index: Any) -> bool:
    """Whether an index that is a tensor counts as an integer, and not as a list of them."""
    return isinstance(index, Tensor) and index.dim() == 0 and index.dtype not in (torch.bool, torch.uint8)
