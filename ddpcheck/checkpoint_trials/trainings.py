"""The trainings of one assertion: built as new, stepped, saved, loaded; and what each held at every turn."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from ddpcheck.checkpoint_trials.ordered_reduction import reduce_in_order
from ddpcheck.checkpoint_trials.user_calls import attempt
from ddpcheck.evidence.training_state import Holdings
from ddpcheck.probes.ddp.model_state import bare
from ddpcheck.probes.digests import readable_memory
from ddpcheck.probes.digests.exact_digests import bytes_digest, digest_of_parts
from ddpcheck.probes.files.recorded_section import Section
from ddpcheck.probes.randomness import random_states
from ddpcheck.probes.training_state.state_holders import modules
from ddpcheck.ranks.current_rank import CurrentRank

Wrap = Callable[[torch.nn.Module], torch.nn.Module]


class Trainings:
    """Builds and moves trainings with the user's functions.

    ``build(wrap)`` gives a training; ``step(training)`` is one optimizer step;
    ``save(training, path)`` and ``load(training, path)`` are called on every
    rank, and ``load`` may return another training to go on with.
    """

    def __init__(
        self,
        rank: CurrentRank,
        build: Callable[[Wrap], Any],
        step: Callable[[Any], object],
        save: Callable[[Any, Path], object],
        load: Callable[[Any, Path], Any],
    ) -> None:
        self.rank = rank
        self._build, self._step, self._save, self._load = build, step, save, load
        self._built = 0
        self.section: Section | None = None
        self.in_order = True
        """The last steps have added up gradients in the order of ranks, whatever DDP's buckets are."""

    def new(self, wrap: Wrap | None = None) -> Any:
        """A training as another process would build it, in DDP by default.

        Its random streams are new, and another on each rank: whoever restores
        none, or one rank's on all, shall not be right by luck.
        """
        self._built += 1
        random_states.scramble(7919 * self._built + self.rank.rank)
        wrapped: list[torch.nn.Module] = []

        def remember(module: torch.nn.Module) -> torch.nn.Module:
            wrapped.append((wrap or self.rank.wrap)(module))
            return wrapped[-1]

        training = attempt("build", lambda: self._build(remember))
        self._look_for(wrapped, training)
        return training

    def _look_for(self, wrapped: list[torch.nn.Module], training: Any) -> None:
        """Refuse a training in which nothing would be checked."""
        found = modules(training)
        inner = {id(bare(m)) for one in found.values() for m in one.modules()}
        lost = [one for one in wrapped if id(bare(one)) not in inner]
        if lost or not found:
            what = f"the {type(bare(lost[0])).__name__} that it has wrapped" if lost else "a module"
            raise TypeError(
                f"build() has returned {_shown(training)}, in which {what} is not found: let it return what holds the "
                "modules and optimizers of the training: an object with attributes, a dict, a tuple"
            )

    def bare(self) -> Any:
        """A training whose modules are not in DDP."""
        return self.new(lambda module: module.to(self.rank.device))

    def steps(self, training: Any, number: int) -> list[str]:
        """Go some steps; a digest, for each, of what the modules were given."""
        given: list[str] = []
        watched = list(modules(training).values())
        reduce_in_order(watched)
        for _ in range(number):
            with inputs_of(watched) as seen:
                attempt("step", lambda: self._step(training))
            given.append(digest_of_parts([text.encode() for text in seen]))
        self.in_order = reduce_in_order(watched)
        return given

    def save(self, training: Any, path: Path) -> None:
        attempt("save", lambda: self._save(training, path), self._evidence)

    def load(self, training: Any, path: Path) -> Any:
        """Load into a training; the one to go on with."""
        loaded = attempt("load", lambda: self._load(training, path), self._evidence)
        if loaded is None or modules(loaded).keys() != modules(training).keys():
            return training  # it has returned a number of epochs, or what it has read
        return loaded

    def _evidence(self) -> bytes:
        return self.section.so_far() if self.section is not None else b""


def _shown(training: Any) -> str:
    text = repr(training) if isinstance(training, (int, float, str, type(None))) else type(training).__name__
    return text[:80]


@contextmanager
def inputs_of(watched: Iterable[torch.nn.Module]) -> Iterator[list[str]]:
    """Digests of the tensors that these modules are given, one after the other."""
    seen: list[str] = []

    def look(module: torch.nn.Module, args: Any, kwargs: Any) -> None:
        tensors = [readable_memory.local(tensor) for tensor in _tensors((args, kwargs))]
        seen.extend("" if tensor is None else bytes_digest(tensor) for tensor in tensors)

    handles = [module.register_forward_pre_hook(look, with_kwargs=True) for module in watched]
    try:
        yield seen
    finally:
        for handle in handles:
            handle.remove()


def _tensors(one: Any) -> Iterator[torch.Tensor]:
    if isinstance(one, torch.Tensor):
        yield one
    elif isinstance(one, dict):
        for value in one.values():
            yield from _tensors(value)
    elif isinstance(one, (list, tuple)):
        for value in one:
            yield from _tensors(value)


def idle(*held: Holdings) -> frozenset[str]:
    """Streams and counters that are the same in all of these: no step has moved them."""
    first = held[0]
    return frozenset(
        name
        for name, value in first.items()
        if value.kind in ("random", "counter") and all(value.equals(one.get(name)) for one in held[1:])
    )


def moved(before: Holdings, after: Holdings) -> dict[str, tuple[str, str]]:
    """What lies on another device than before."""
    return {
        name: (value.device, after[name].device)
        for name, value in before.items()
        if value.device and name in after and after[name].device != value.device
    }


def own_devices(held: Holdings) -> tuple[str, ...]:
    """The devices that a training's modules are on."""
    return tuple(sorted({v.device for v in held.values() if v.kind in ("parameter", "buffer")}))


def modules_only(held: Holdings) -> Holdings:
    """What the modules' own state_dict holds, of everything."""
    return {name: value for name, value in held.items() if value.kind in ("parameter", "buffer")}
