"""What a program does with a wrapped module besides training it: takes it out of its wrapper, moves it, changes it."""

from __future__ import annotations

import sys
from typing import Any

import torch
from torch.nn.parallel import DistributedDataParallel
from torch.nn.parallel import distributed as ddp_module

from ddpcheck import seams
from ddpcheck.evidence import Moved, Replaced
from ddpcheck.probes.ddp import parameter_names
from ddpcheck.probes.ddp.wrapper_usage import WRAPPERS
from ddpcheck.probes.ddp.wrappers import is_wrapped, wrapper_of
from ddpcheck.probes.recording import recorder, user_lines
from ddpcheck.probes.recording.call_frames import caller
from ddpcheck.probes.recording.patching import beforehand, named, shielded
from ddpcheck.probes.recording.unwatchable_moments import asleep

__tracebackhide__ = True
"""For pytest: a failure that comes through a probe is told without its frames."""


def watch() -> None:
    """Watch what becomes of wrapped modules from now on."""
    if not seams.BY_NAME["torch.nn.Module._modules"].is_missing:
        _watch_module(DistributedDataParallel, vars(ddp_module))
    beforehand(torch.nn.Module, "_apply", _moved)
    parameter_names.at_registration(_registered)


def _watch_module(kind: Any, own: dict[str, Any]) -> None:
    """See who asks wrappers of this class for ``ddp.module``, which is found in the way that it always is.

    The class itself has nothing of this name: torch.compile would go by that, and no further. The code of its own
    module, with these globals, asks for it several times in every forward, which is of no interest.
    """
    original = kind.__getattr__

    def __getattr__(self: Any, name: str) -> Any:
        if name == "module" and not asleep() and sys._getframe(1).f_globals is not own:
            _taken(self, sys._getframe(1))
        return original(self, name)

    kind.__getattr__ = named(__getattr__, kind, "__getattr__")


@shielded
def _taken(ddp: Any, frame: Any) -> None:
    """Who takes the module out in training may be about to go round the wrapper."""
    while frame.f_code.co_name == "__getattr__" and frame.f_back is not None:  # a subclass's own, which asks torch's
        frame = frame.f_back
    if torch.is_grad_enabled() and user_lines.is_users(frame.f_code):
        wrapper = WRAPPERS.all.get(ddp)
        if wrapper is not None:
            wrapper.bare_site = user_lines.here(frame)


def _moved(module: Any, *_: Any, **__: Any) -> None:
    wrapper = wrapper_of(module)
    writer = recorder.current()
    if wrapper is not None and writer is not None:
        name = caller().f_code.co_name
        writer.write(Moved(**writer.next(), wrapper=wrapper.number, site=user_lines.here(), function=name))


def _registered(module: Any, name: str, parameter: Any) -> None:
    if parameter is not None and is_wrapped(module):
        writer = recorder.current()
        if writer is not None:
            writer.write(Replaced(**writer.next(), name=f"{type(module).__name__}.{name}", site=user_lines.here()))
