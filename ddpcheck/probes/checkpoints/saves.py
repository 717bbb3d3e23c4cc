"""What is saved: the state dict when it is given to be saved, and once more when it has been written."""

from __future__ import annotations

import sys
import threading
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Literal, NamedTuple

import torch
import torch.distributed as dist

from ddpcheck.evidence import UNSEEN, WIDTH, SaveBegan, StateSaved, StateWritten
from ddpcheck.probes.checkpoints import entries
from ddpcheck.probes.collectives.process_groups import ranks_of
from ddpcheck.probes.devices.awaited import Derived
from ddpcheck.probes.digests import fast_digests
from ddpcheck.probes.files import paths, torch_save_and_load, writer_threads
from ddpcheck.probes.processes import later_records
from ddpcheck.probes.recording import recorder, signal_exceptions
from ddpcheck.probes.recording.arguments import Arguments, places
from ddpcheck.probes.recording.pace import is_due
from ddpcheck.probes.recording.patching import around, once_imported
from ddpcheck.probes.recording.tensor_references import Reference, reference

SAVER = "torch.distributed.checkpoint.state_dict_saver"

How = Literal["torch.save", "dcp.save", "dcp.async_save"]


class Given(NamedTuple):
    """A state dict that was given to be saved."""

    save: int
    looked: entries.Looked
    tensors: list[Reference | None]
    """Those of the entries: nothing is kept for being looked at once more."""


_saves = 0
_numbers: Counter[tuple[str, int]] = Counter()
"""Saves of each line."""
_pending: dict[str, Given] = {}
"""By the path of a checkpoint that is saved in the background: what it was given."""
_own = threading.local()


def watch() -> None:
    """Record every state that is saved from now on."""
    torch_save_and_load.save_listeners.append(_by_torch)
    once_imported(SAVER, _watch_saver)


def _watch_saver() -> None:
    saver = sys.modules.get(SAVER)
    around(saver, "_save_state_dict", _around_writing)
    around(saver, "async_save", _around_async)
    around(saver, "_stateful_to_state_dict", _around_resolving)


def is_of_checkpoint() -> bool:
    """Whether this thread is in the midst of torch's distributed checkpoint: the files are its own."""
    return getattr(_own, "inside", 0) > 0


# --- torch.save


def _by_torch(saved: Any, path: str, site: int) -> Any:
    """A state dict is about to be saved; what to do when that is done."""
    if is_of_checkpoint() or not isinstance(saved, Mapping):
        return None
    given = _give("torch.save", saved, path, site, ())
    return partial(_written, given) if given is not None else None


# --- torch.distributed.checkpoint


def _around_async(original: Any) -> Any:
    known = places(original)

    def async_save(*args: Any, **kwargs: Any) -> Any:
        if recorder.current() is None:
            return original(*args, **kwargs)
        given = Arguments(known, args, kwargs)
        path = path_of(given.get("checkpoint_id"), given.get("storage_writer"))
        site = writer_threads.line()
        _own.asked = (path, site, _ranks(given))
        try:
            return original(*args, **kwargs)
        finally:
            _own.asked = None

    return async_save


def _around_resolving(original: Any) -> Any:
    """Every object that has a state has been asked for it: within async_save, this is what is to be saved."""

    def resolve(*args: Any, **kwargs: Any) -> Any:
        result = original(*args, **kwargs)
        asked = getattr(_own, "asked", None)
        if asked is not None and asked[0]:
            _own.asked = None
            path, site, ranks = asked
            given = _give("dcp.async_save", result, path, site, ranks)
            if given is not None:
                _pending[path] = given
        return result

    return resolve


def _around_writing(original: Any) -> Any:
    known = places(original)

    def save(*args: Any, **kwargs: Any) -> Any:
        if recorder.always() is None:
            return original(*args, **kwargs)
        given = Arguments(known, args, kwargs)
        path = path_of(None, given.get("storage_writer"))
        state = given.get("state_dict")
        before = _pending.pop(path, None)
        if before is not None:
            before = _staged(before, state)
        else:
            before = _give("dcp.save", state, path, writer_threads.line(), _ranks(given))
        _own.inside = getattr(_own, "inside", 0) + 1
        try:
            return original(*args, **kwargs)
        finally:
            _own.inside -= 1
            if before is not None:
                _written(before)

    return save


def path_of(given: Any, writer: Any) -> str:
    """Of a checkpoint: what it is known by, as text."""
    if given is None:
        given = getattr(writer, "checkpoint_id", None) or getattr(writer, "path", None)
    return paths.resolved(str(given)) if given is not None else ""


def _ranks(given: Arguments) -> tuple[int, ...]:
    if given.get("no_dist") or not dist.is_initialized():
        return ()
    return ranks_of(given.get("process_group"))


# --- what is given, and what was written


def _give(how: How, state: Any, path: str, site: int, ranks: tuple[int, ...]) -> Given | None:
    global _saves
    writer = recorder.always()
    number = _numbers[how, site]
    _numbers[how, site] += 1
    if writer is None:
        return None
    if path:
        writer.write(SaveBegan(**writer.next(), path=path))
    found = looked(writer, state) if is_due(number) else None
    if found is None or not found.entries:
        return None
    save, _saves = _saves, _saves + 1
    record = partial(
        StateSaved,
        **writer.next(),
        save=save,
        how=how,
        path=path,
        site=site,
        number=number,
        form=found.form,
        thread=writer_threads.name(),
        mistaken=found.mistaken,
        ranks=ranks,
    )
    later_records.write(writer, record, digests=found.digests, sums=found.sums)
    refs = [reference(one) if one is not None else None for one in found.tensors]
    return Given(save, found._replace(tensors=[]), refs)


def looked(
    writer: recorder.Recorder, state: Any, sums: bool = True, names_alone: bool = False
) -> entries.Looked | None:
    """What is in a state dict; None where it cannot be looked at."""
    try:
        with recorder.silence(), torch.no_grad():
            return entries.look(writer, state, sums, names_alone)
    except Exception as error:  # a class of the user's own; or the training goes on beside this thread
        signal_exceptions.let_through(error)
        return None


def _staged(given: Given, state: Any) -> Given | None:
    """Compare what is about to be written, a copy or the same tensors, with what was given; it is what counts now."""
    writer = recorder.always()
    found = looked(writer, state, sums=False) if writer is not None else None
    if writer is None or found is None:
        return None
    by_name = {one.name: place for place, one in enumerate(found.entries)}
    others = [by_name.get(one.name) for one in given.looked.entries]
    tensors = [found.tensors[other] if other is not None else None for other in others]
    _compare(writer, given, found.digests, others, staged=True)
    return given._replace(tensors=[reference(one) if one is not None else None for one in tensors])


def _written(given: Given) -> None:
    """Compare what was given with what it holds now that it was written."""
    writer = recorder.always()
    if writer is None:
        return
    copied = [ref() if ref is not None else None for ref in given.tensors]
    with recorder.silence():
        now = fast_digests.queued(copied)
    _compare(writer, given, now, [place if one is not None else None for place, one in enumerate(copied)])


def _compare(
    writer: recorder.Recorder, given: Given, now: Any, places: Sequence[int | None], staged: bool = False
) -> None:
    """Write down which entries hold something else now; ``places``: where each stands among these digests."""

    def changed(before: bytes, after: bytes) -> list[int]:
        return [n for n, other in enumerate(places) if other is not None and _differ(before, n, after, other)]

    record = partial(StateWritten, **writer.next(), save=given.save, staged=staged)
    later_records.write(writer, record, changed=Derived(changed, given.looked.digests, now))


def _differ(first: bytes, place: int, second: bytes, other: int) -> bool:
    one, two = first[place * WIDTH : (place + 1) * WIDTH], second[other * WIDTH : (other + 1) * WIDTH]
    return UNSEEN not in (one, two) and one != two
