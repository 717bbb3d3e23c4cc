"""The mode in which the forwards of a window run: which modules train, and which parameters need gradients."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

import torch

from ddpcheck.evidence import Modes
from ddpcheck.probes.recording import recorder, user_lines

BYTES = 512
"""That one model takes in a record beside its names, as a rule."""


class _Mode(NamedTuple):
    """Of the forwards of a model since the last backward()."""

    modules: list[str]
    parameters: list[str]
    training: bytes
    trained: bytes
    site: int
    several: bool
    """They ran in different modes."""


_since_backward: dict[int, _Mode] = {}
_written: dict[int, tuple[recorder.Recorder, list[str], list[str]]] = {}
"""By model, the file of its last record, and the names in it."""


def note(model: int, module: torch.nn.Module) -> None:
    """A forward of a model begins."""
    modules, parameters = list(module.named_modules()), list(module.named_parameters())
    training = _flags(one.training for _, one in modules)
    trained = _flags(one.requires_grad for _, one in parameters)
    before = _since_backward.get(model)
    several = before is not None and (before.several or (before.training, before.trained) != (training, trained))
    names = [name for name, _ in modules], [name for name, _ in parameters]
    _since_backward[model] = _Mode(*names, training, trained, user_lines.here(), several)


def _flags(values: Iterable[Any]) -> bytes:
    return bytes(bool(one) for one in values)


def write(writer: recorder.Recorder, backward: int) -> None:
    """A backward() begins: write down the modes of the forwards before it."""
    for model, mode in _since_backward.items():
        names = writer, mode.modules, mode.parameters
        known = _written.get(model) == names
        size = len(mode.training) + len(mode.trained) + BYTES
        if size + (0 if known else sum(map(len, (*mode.modules, *mode.parameters)))) > writer.room(Modes) / 2:
            continue
        _written[model] = names
        record = Modes(
            **writer.next(),
            model=model,
            backward=backward,
            site=mode.site,
            training=mode.training,
            trained=mode.trained,
            modules=[] if known else mode.modules,
            parameters=[] if known else mode.parameters,
            several=mode.several,
        )
        writer.write(record)
    forget()


def forget() -> None:
    """Forwards without a backward() say nothing of later ones."""
    _since_backward.clear()
