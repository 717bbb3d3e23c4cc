"""Weights that were loaded into a module and are drawn anew before anything has used them."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch

from ddpcheck.evidence import DrawnAnew
from ddpcheck.probes.files import state_dict_loads
from ddpcheck.probes.layouts.own_names import own_name
from ddpcheck.probes.recording import recorder, user_lines
from ddpcheck.probes.recording.patching import around
from ddpcheck.probes.recording.tensor_references import reference

DRAWING = (
    "uniform_",
    "normal_",
    "trunc_normal_",
    "xavier_uniform_",
    "xavier_normal_",
    "kaiming_uniform_",
    "kaiming_normal_",
    "orthogonal_",
)
"""Those of torch.nn.init that draw: what they write nobody has computed from what was there."""

_MOST = 10_000
"""Weights that are waited for."""


class _Load:
    """One load: its matrices, and how many of them still have what it gave them."""

    def __init__(self, kind: str, site: int, weights: dict[int, str]) -> None:
        self.kind, self.site, self.left, self.of = kind, site, weights, len(weights)
        self.first = next(iter(weights.values()))


_loads: dict[int, _Load] = {}
"""By the id of a weight: the last load of it that nothing has used yet."""


def watch() -> None:
    """See what is drawn over what was loaded, from now on."""
    state_dict_loads.load_listeners.append(_loaded)
    for name in DRAWING:
        around(torch.nn.init, name, _around_draw)


def used() -> None:
    """A module is called: what was loaded until now has served."""
    if _loads:
        _loads.clear()


def _loaded(owner: str, module: Any, site: int, given: int) -> None:
    if owner != "module" or len(_loads) > _MOST:
        return
    named = dict(module.named_parameters())
    weights = {id(one): own_name(name) for name, one in named.items() if one.dim() > 1}
    if not weights or given < len(named):  # a part of it: nobody says which
        return
    load = _Load(type(module).__name__, site, weights)
    for one in named.values():
        if id(one) in weights:
            _loads[id(one)] = load
            reference(one).when_gone(partial(_loads.pop, id(one), None))


def _around_draw(original: Any) -> Any:
    def draw(tensor: Any, *args: Any, **kwargs: Any) -> Any:
        result = original(tensor, *args, **kwargs)
        load = _loads.pop(id(tensor), None) if _loads else None
        writer = recorder.current()
        if load is not None and writer is not None:
            load.left.pop(id(tensor), None)
            if not load.left:
                writer.write(
                    DrawnAnew(
                        **writer.next(),
                        kind=load.kind,
                        weight=load.first,
                        of=load.of,
                        loaded=load.site,
                        site=user_lines.here(),
                    )
                )
        return result

    return draw
