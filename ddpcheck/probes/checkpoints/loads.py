"""What is loaded: what modules, optimizers and state dicts hold when it is done."""

from __future__ import annotations

import sys
import weakref
from collections import Counter
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any, NamedTuple

import torch
from torch.nn.parallel import DistributedDataParallel
from torch.optim import optimizer as home

from ddpcheck.evidence import Entry, LoadBegan, StateRead
from ddpcheck.evidence.saved_state import Role
from ddpcheck.probes.checkpoints import entries, saves
from ddpcheck.probes.checkpoints.live import Training, moments
from ddpcheck.probes.ddp.parameter_names import number_of
from ddpcheck.probes.files import state_dict_loads, torch_save_and_load
from ddpcheck.probes.layouts import declared
from ddpcheck.probes.layouts.own_names import own_name
from ddpcheck.probes.optimizers import steps
from ddpcheck.probes.processes import later_records
from ddpcheck.probes.recording import recorder, signal_exceptions, user_lines
from ddpcheck.probes.recording.arguments import Arguments, places
from ddpcheck.probes.recording.pace import is_due
from ddpcheck.probes.recording.patching import around, once_imported, shielded

MOST_BYTES = 1 << 29
"""Of what torch.load has given, up to which its elements are looked at."""
LOADER = "torch.distributed.checkpoint.state_dict_loader"


class _Waiting(NamedTuple):
    """An optimizer that state was loaded into: which parameters it has is known by name once the model is called."""

    optimizer: weakref.ref[Any]
    n: int
    site: int
    number: int


_numbers: Counter[tuple[str, int]] = Counter()
_waiting: list[_Waiting] = []


def watch() -> None:
    """Record what every load leaves, from now on."""
    state_dict_loads.load_listeners.append(_into)
    torch_save_and_load.load_listeners.append(_from_file)
    register = getattr(home, "register_optimizer_step_pre_hook", None)
    if register is not None:
        register(shielded(_before_step))
    once_imported(LOADER, _watch_loader)


def _watch_loader() -> None:
    around(sys.modules.get(LOADER), "_load_state_dict", _around_load)


def _into(owner: str, one: Any, site: int, given: int) -> None:
    """State was loaded into a module or an optimizer."""
    writer = recorder.current()
    if writer is None or owner not in ("module", "optimizer"):
        return
    number = _numbers[owner, site]
    _numbers[owner, site] += 1
    if not is_due(number):
        return
    if owner == "optimizer":
        _waiting.append(_Waiting(weakref.ref(one), writer.next()["n"], site, number))
    else:
        try:
            with recorder.silence(), torch.no_grad():
                looked = entries.look_at(writer, list(_of_module(writer, one)))
        except Exception as error:  # a class of the user's own, or a type that nothing can be computed with
            signal_exceptions.let_through(error)
            return
        inner = one.module if isinstance(one, DistributedDataParallel) else one
        about = {"how": "module", "kind": type(one).__name__, "path": "", "site": site, "number": number}
        _write(writer, looked, **about, given=given, model=number_of(inner))


def _from_file(state: Any, path: str, site: int, is_mapped: bool) -> None:
    """torch.load has given this."""
    writer = recorder.current()
    if writer is None or not isinstance(state, Mapping) or saves.is_of_checkpoint():
        return
    number = _numbers["torch.load", site]
    _numbers["torch.load", site] += 1
    if not is_due(number):
        return
    looked = saves.looked(writer, state, names_alone=is_mapped or _size(state) > MOST_BYTES)
    if looked is not None:
        _write(writer, looked, how="torch.load", kind="", path=path, site=site, number=number)


def _size(state: Any, depth: int = entries.DEEPEST) -> int:
    """The bytes of the tensors in a state dict."""
    if isinstance(state, torch.Tensor):
        return state.numel() * state.element_size()
    return sum(_size(one, depth - 1) for one in state.values()) if isinstance(state, dict) and depth else 0


def _before_step(optimizer: Any, args: Any, kwargs: Any) -> None:
    """The models have been called by now: say what was loaded into optimizers, before any of it is stepped."""
    writer = recorder.current()
    if writer is None or not _waiting:
        return
    waiting, _waiting[:] = list(_waiting), []
    with recorder.silence(), torch.no_grad():
        training = Training(writer)
        for one in waiting:
            loaded = one.optimizer()
            if loaded is not None:
                named = list(_of_optimizer(writer, loaded, training))
                looked = entries.look_at(writer, named)
                about = {"how": "optimizer", "kind": type(loaded).__name__, "path": "", "when": one.n}
                _write(writer, looked, site=one.site, number=one.number, **about)


def _around_load(original: Any) -> Any:
    known = places(original)

    def load(*args: Any, **kwargs: Any) -> Any:
        writer = recorder.current()
        site = user_lines.here()
        number = _numbers["dcp.load", site]
        _numbers["dcp.load", site] += 1
        if writer is None or not is_due(number):
            return original(*args, **kwargs)
        given = Arguments(known, args, kwargs)
        path = saves.path_of(None, given.get("storage_reader"))
        writer.write(LoadBegan(**writer.next(), path=path, site=site))
        result = original(*args, **kwargs)
        if (looked := saves.looked(writer, given.get("state_dict"))) is not None:
            _write(writer, looked, how="dcp.load", kind="", path=path, site=site, number=number)
        return result

    return load


def _write(writer: recorder.Recorder, looked: entries.Looked, **about: Any) -> None:
    if looked.entries:
        seen: dict[str, Any] = {
            "form": looked.form,
            "made": steps.made(),
        }
        record = partial(StateRead, **writer.next(), **seen, **about)
        later_records.write(writer, record, digests=looked.digests, sums=looked.sums)


# --- what an owner holds, by name


def _of_module(writer: recorder.Recorder, module: Any) -> Iterator[tuple[Entry, torch.Tensor]]:
    parameters = dict(module.named_parameters())
    named = {**parameters, **dict(module.named_buffers())}
    for name, tensor in named.items():
        path = own_name(name).removeprefix("module.")
        role: Role = "parameter" if name in parameters else "buffer"
        layout = declared.layout_of(writer, tensor, whole=True)
        yield Entry(name=path, kind=entries.kind(tensor), role=role, of=path, live=True, layout=layout), tensor


def _of_optimizer(
    writer: recorder.Recorder, optimizer: Any, training: Training
) -> Iterator[tuple[Entry, torch.Tensor]]:
    """Its parameters as they are, and what it keeps for each: of no model, by their places in it."""
    listed = [one for group in optimizer.param_groups for one in group["params"]]
    for place, parameter in enumerate(listed):
        path, layout = training.names.get(id(parameter), ("", None))
        known, shown = path or f"parameter {place}", entries.kind(parameter)
        yield Entry(name=known, kind=shown, role="parameter", of=path, live=True, layout=layout), parameter
        for key, tensor, own in moments(writer, optimizer, parameter, layout):
            shown = entries.kind(tensor)
            entry = Entry(name=f"{known} {key}", kind=shown, role="moment", of=path, key=key, live=True, layout=own)
            yield entry, tensor
