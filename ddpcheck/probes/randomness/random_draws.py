"""Random states at the moments where they are consumed: forwards in training, and the fetching of samples."""

from __future__ import annotations

import array
import os
import random
import socket
import sys
from collections import Counter
from collections.abc import Callable
from typing import Any, Literal

import torch
import torch.utils.data
import xxhash
from torch.utils.data import get_worker_info

from ddpcheck.evidence import NO_SITE, Began, Stream
from ddpcheck.probes.all_probes import whole
from ddpcheck.probes.data import dataloaders, fetched_samples
from ddpcheck.probes.data.fetched_samples import Place
from ddpcheck.probes.data.loader_pass import IN_THREAD, is_told
from ddpcheck.probes.digests.batch_fingerprints import head
from ddpcheck.probes.files import paths
from ddpcheck.probes.randomness import after_batches, seed_lines
from ddpcheck.probes.recording import recorder, user_lines
from ddpcheck.probes.recording.missing_seams import attribute
from ddpcheck.probes.recording.patching import around
from ddpcheck.vocabulary.clock import clock

Kind = Literal["torch", "numpy", "python", "cuda"]

FETCHES = 3
"""How many fetches of a pass are looked at."""
FORWARDS = 8
"""How many forwards are looked at, before it is powers of two."""
_AFTER_SEEDING = 256
"""How many forwards are looked at for being the first or second after a seeding."""
_STATE_BYTES = 8192
_FETCHED = "_ddpcheck_fetched"
"""The attribute of torch's fetchers, which are made for each pass, that counts what they have fetched."""


class _Forwards:
    """The forwards in training through one wrapper, or of a model in none."""

    def __init__(self) -> None:
        self.number = 0
        self.seedings = 0
        self.fresh = 0
        """How many more of them are looked at because a line has set a random state."""
        self.extra = 0
        self.before: dict[Kind, bytes] | None = None


_forwards: dict[tuple[int | None, int | None], _Forwards] = {}
"""By the number of the wrapper, or that of the model."""
_fetchers = 0
"""The fetchers that this process, a worker, has used: one for each pass."""
_told_worker_of = False
_forked_here = False


def watch() -> None:
    """Record random states from now on."""
    seed_lines.watch()
    fetchers = getattr(getattr(torch.utils.data, "_utils", None), "fetch", None)
    for name in ("_MapDatasetFetcher", "_IterableDatasetFetcher"):
        around(getattr(fetchers, name, None), "fetch", _around_fetch)
    os.register_at_fork(after_in_child=_forked)


# --- forwards


def forward_begins(wrapper: int | None, model: int | None = None) -> None:
    """A forward in training begins, through a wrapper, or of a model in none."""
    found = _forwards.setdefault((wrapper, model), _Forwards())
    if seed_lines.times != found.seedings and found.extra < _AFTER_SEEDING:
        found.seedings, found.fresh = seed_lines.times, 2
    looked = is_told(found.number, FORWARDS)
    if not looked and found.fresh:
        looked = True
        found.extra += 1
    found.fresh = max(0, found.fresh - 1)
    _tell_after_batch(found.number, wrapper, model)
    found.number += 1
    found.before = of_torch() if looked and recorder.current() is not None else None


def _tell_after_batch(number: int, wrapper: int | None, model: int | None) -> None:
    """The program has drawn something since it was handed a batch."""
    drawn, writer = after_batches.drawn(), recorder.current()
    if drawn is None or writer is None:
        return
    seeded, seed = seed_lines.last("torch")
    writer.write(
        Stream(
            **writer.next(),
            kind="torch",
            where="batch",
            number=number,
            state=drawn.state,
            consumed=True,
            site=user_lines.here(),
            loader=drawn.loader,
            wrapper=wrapper,
            model=model,
            seeded=seeded,
            seed=seed,
            numbers=drawn.numbers,
        )
    )


def forward_ends(wrapper: int | None, model: int | None = None) -> None:
    """It has ended."""
    found = _forwards.get((wrapper, model))
    writer = recorder.current()
    if found is None or found.before is None or writer is None:
        return
    before, found.before = found.before, None
    after = of_torch()
    site = NO_SITE
    for kind, state in before.items():
        if after.get(kind, state) != state:
            site = site or user_lines.here()
            seeded, seed = seed_lines.last(kind)
            writer.write(
                Stream(
                    **writer.next(),
                    kind=kind,
                    where="forward",
                    number=found.number - 1,
                    state=state,
                    consumed=True,
                    site=site,
                    wrapper=wrapper,
                    model=model,
                    seeded=seeded,
                    seed=seed,
                )
            )


# --- fetches


def _around_fetch(original: Any) -> Any:
    def fetch(self: Any, index: Any) -> Any:
        number = self.__dict__.get(_FETCHED, 0)
        self.__dict__[_FETCHED] = number + 1
        writer = recorder.current()
        if writer is None:
            return original(self, index)
        place = _place(writer, number)
        if place is None:
            return original(self, index)
        fetched_samples.see(writer, self, number, place, index, IN_THREAD.passing)
        if number >= FETCHES:
            return original(self, index)
        before, sets = _of_all(), seed_lines.sets.copy()
        batch = original(self, index)
        _tell(writer, number, place, before, sets)
        return batch

    return fetch


def _place(writer: recorder.Recorder, number: int) -> Place | None:
    """None for the fetches of a pass that is not looked at."""
    global _fetchers
    info = get_worker_info()
    if info is None:
        passing = IN_THREAD.passing
        return Place(passing.loader, passing.number, None, None) if passing is not None and passing.told else None
    if number == 0:
        _fetchers += 1
        _say_whose_worker(writer)
    further = _fetchers - 1
    known = dataloaders.begun if _forked_here else None
    if not is_told(further if known is None else known[1] + further, FETCHES):
        return None
    base_seed = info.seed - info.id
    if known is None:  # started afresh: the base seed says which pass it was
        return Place(None, further, info.id, base_seed)
    return Place(known[0], known[1] + further, info.id, base_seed)


def _tell(writer: recorder.Recorder, number: int, place: Place, before: dict[Kind, bytes], sets: Counter[str]) -> None:
    after = _of_all()
    for kind, state in before.items():
        if after.get(kind, state) == state:
            continue
        seeded, seed = seed_lines.last(kind)
        writer.write(
            Stream(
                **writer.next(),
                kind=kind,
                where="fetch",
                number=number,
                state=state,
                consumed=True,
                site=user_lines.here() if place.worker is None else NO_SITE,
                loader=place.loader,
                pass_=place.pass_,
                worker=place.worker,
                base_seed=place.base_seed,
                seeded=seeded,
                seed=seed,
                inside=seed_lines.sets[kind] != sets[kind],
            )
        )


# --- workers


def _forked() -> None:
    global _forked_here, _fetchers
    _forked_here, _fetchers = True, 0


def _say_whose_worker(writer: recorder.Recorder) -> None:
    """A worker that was not forked does not know that it is one before it has something to do."""
    global _told_worker_of
    if _forked_here or _told_worker_of:
        return
    _told_worker_of = True
    writer.write(
        Began(
            **writer.next(),
            pid=os.getpid(),
            parent=os.getppid(),
            host=socket.gethostname(),
            node=whole("GROUP_RANK") or 0,
            argv=list(sys.argv),
            folder=paths.working_folder(),
            wall=clock.wall(),
            worker_of=os.getppid(),
        )
    )


# --- states


def of_torch() -> dict[Kind, bytes]:
    found = _of_cpu()
    if torch.cuda.is_available() and torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        generators = attribute(torch.cuda, "default_generators", ())  # simulated devices have none of their own
        if generators:
            found["cuda"] = head(generators[torch.cuda.current_device()].get_state(), _STATE_BYTES)
    return found


def _of_cpu() -> dict[Kind, bytes]:
    generator = attribute(torch, "default_generator", None)
    return {"torch": head(generator.get_state(), _STATE_BYTES)} if generator is not None else {}


def _of_all() -> dict[Kind, bytes]:
    found: dict[Kind, bytes] = {**_of_cpu(), "python": _of_python()}
    numpy = sys.modules.get("numpy.random")
    if numpy is not None:
        found["numpy"] = _of_numpy(numpy.get_state)
    return found


def _of_python() -> bytes:
    _, words, gauss = random.getstate()
    return xxhash.xxh3_64_digest(array.array("Q", words).tobytes() + repr(gauss).encode())


def _of_numpy(get_state: Callable[..., Any]) -> bytes:
    state = get_state(legacy=False)
    words = state["state"]
    rest = {name: value for name, value in state.items() if name != "state"}
    keys = words.get("key") if isinstance(words, dict) else None
    if keys is None:  # another generator than numpy's own
        return xxhash.xxh3_64_digest(repr(state).encode())
    return xxhash.xxh3_64_digest(keys.tobytes() + repr((words.get("pos"), rest)).encode())
