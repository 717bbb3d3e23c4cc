"""What a program does with a wrapped module besides training it: takes it out of its wrapper, moves it, changes it."""

from __future__ import annotations

import sys
from typing import Any

import torch
from torch.nn.parallel import DistributedDataParallel

from ddpcheck import seams
from ddpcheck.evidence import Moved, Replaced
from ddpcheck.probes.ddp import parameter_names
from ddpcheck.probes.ddp.wrapper_usage import WRAPPERS
from ddpcheck.probes.ddp.wrappers import is_wrapped, wrapper_of
from ddpcheck.probes.recording import recorder, user_lines
from ddpcheck.probes.recording.call_frames import caller
from ddpcheck.probes.recording.patching import beforehand, shielded
from ddpcheck.probes.recording.unwatchable_moments import asleep

__tracebackhide__ = True
"""For pytest: a failure that comes through a probe is told without its frames."""


def watch() -> None:
    """Watch what becomes of wrapped modules from now on."""
    if not seams.BY_NAME["torch.nn.Module._modules"].is_missing:
        DistributedDataParallel.module = _Module()
    beforehand(torch.nn.Module, "_apply", _moved)
    parameter_names.at_registration(_registered)


class _Module:
    """Stands where the class has nothing of this name, to see who asks for ``ddp.module``.

    It has nothing either: it is found in the way that it always is, by ``__getattr__``, which a subclass may have.
    """

    def __get__(self, ddp: Any, kind: type | None = None) -> Any:
        if ddp is not None:
            if asleep():  # the compiler traces none of what follows, and does not look any further where this raises
                return ddp.__getattr__("module")
            _taken(ddp, sys._getframe(1))
        raise AttributeError("module")


@shielded
def _taken(ddp: Any, frame: Any) -> None:
    """Who takes the module out in training may be about to go round the wrapper."""
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
