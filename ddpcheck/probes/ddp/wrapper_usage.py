"""What a script does with each DDP wrapper from one optimizer step to the next."""

from __future__ import annotations

import weakref
from collections import Counter
from collections.abc import Collection
from functools import partial
from typing import Any

import torch

from ddpcheck.evidence import NO_SITE, Usage
from ddpcheck.probes.ddp.after_backward import AfterBackward
from ddpcheck.probes.recording.missing_seams import attribute
from ddpcheck.probes.recording.tensor_references import Reference, reference

_COUNTS = ("forwards", "armed", "reached", "backwards", "no_sync", "no_sync_forwards")


def reduced_by(ddp: Any) -> Collection[torch.Tensor]:
    """The parameters that a wrapper has handed to its reducer, in their order there, the frozen ones among them."""
    found: Collection[torch.Tensor] = attribute(ddp, "_module_parameters", ())
    return found


class Wrapper:
    """A wrapper's record: counts that only grow, and the last lines that mattered."""

    def __init__(self, number: int, ddp: Any) -> None:
        self.number = number
        self.ddp = weakref.ref(ddp)
        self.counts = dict.fromkeys(_COUNTS, 0)
        self.lines: Counter[int] = Counter()
        self.backward_site = self.forward_site = self.bare_site = NO_SITE
        self.no_sync_site = self.sync_flag_site = NO_SITE
        self.armed_now = False
        """A forward has prepared the reducer, and no backward has come through its output yet."""
        self.thread = 0
        """That of the last forward with gradients."""
        self.unarmed_flag: bool | None = None
        """What ``require_backward_grad_sync`` was at the last forward, outside of no_sync()."""
        self.depth = 0
        """no_sync() blocks that are open."""
        self.after: AfterBackward | None = None
        """The gradients when the last backward() had ended; None where they were not looked at."""
        self.synced: Counter[str] = Counter()
        self.group = "world"
        self.queued_on: int | None = None
        """The GPU that its collectives are queued on; None where they are done when they return."""
        self.buffers = 0
        """Buffers that it had when it was built."""
        self.apart = False
        """A communication hook leaves each rank its own gradients, for parameters that are averaged later."""
        self.own_hook = False
        """A communication hook of the user's own reduces the gradients."""
        self.last_armed = False
        """The last forward made the next backward reduce."""

    def parameters(self) -> Collection[torch.Tensor]:
        """Those that it has handed to its reducer, in their order there, the frozen ones among them."""
        ddp = self.ddp()
        return reduced_by(ddp) if ddp is not None else ()

    @property
    def steps_apart(self) -> bool:
        """Whether nothing makes the ranks' gradients the same: by a communication hook that does not mean to."""
        return self.apart or (self.own_hook and self.group not in WRAPPERS.hooked_over)

    def since(self, before: dict[str, int]) -> Usage:
        """What has happened since these counts were taken; without the gradients after its last backward()."""
        counts: dict[str, Any] = {name: self.counts[name] - before.get(name, 0) for name in _COUNTS}
        return Usage(
            wrapper=self.number,
            **counts,
            same_line=max(self.lines.values(), default=0),
            backward_site=self.backward_site,
            forward_site=self.forward_site,
            bare_site=self.bare_site,
            no_sync_site=self.no_sync_site,
            sync_flag_site=self.sync_flag_site,
            last_armed=self.last_armed,
        )

    def stepped(self) -> None:
        """An optimizer has made a step with it: lines that are to be of this step are forgotten."""
        self.lines.clear()
        self.bare_site = self.sync_flag_site = NO_SITE
        self.after = None


class Wrappers:
    """All wrappers of this process."""

    def __init__(self) -> None:
        self.made = 0
        """Those that have been built: their numbers must not depend on when one is collected."""
        self.all: weakref.WeakKeyDictionary[Any, Wrapper] = weakref.WeakKeyDictionary()
        self.hooked_over: set[str] = set()
        """The groups that communication hooks of the user's own have called collectives on."""
        self._owners: dict[int, tuple[Reference, str, Wrapper, bool]] = {}
        self._reduced: set[int] = set()

    def add(self, ddp: Any) -> Wrapper:
        """Take up a wrapper that has just been built."""
        wrapper = Wrapper(self.made, ddp)
        self.made += 1
        self.all[ddp] = wrapper
        for name, parameter in ddp.module.named_parameters():
            self._own(parameter, name, wrapper, late=False)
        for parameter in reduced_by(ddp):
            if not parameter.requires_grad:  # frozen: the reducer leaves it out, for good
                continue
            self._reduced.add(id(parameter))
            reference(parameter).when_gone(partial(self._reduced.discard, id(parameter)))
        return wrapper

    def _own(self, parameter: torch.Tensor, name: str, wrapper: Wrapper, late: bool) -> None:
        self._owners[id(parameter)] = (reference(parameter), name, wrapper, late)

    def owner(self, parameter: torch.Tensor) -> tuple[str, Wrapper, bool] | None:
        """The name of a parameter in its wrapped module, the wrapper, and whether it came there after the wrap."""
        found = self._owners.get(id(parameter))
        return found[1:] if found is not None and found[0]() is parameter else None

    def look_again(self) -> None:
        """Learn of parameters that wrapped modules have got since."""
        for ddp, wrapper in list(self.all.items()):
            for name, parameter in ddp.module.named_parameters():
                if self.owner(parameter) is None:
                    self._own(parameter, name, wrapper, late=True)

    def is_reduced(self, parameter: torch.Tensor) -> bool:
        """Whether some wrapper's reducer knows this very tensor."""
        return id(parameter) in self._reduced


WRAPPERS = Wrappers()


class Region:
    """The stretch of the program since ``with model.join():`` was last entered or left."""

    number = 0


REGION = Region()
