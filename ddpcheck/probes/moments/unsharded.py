"""The leaves that gradients reach in the place of sharded parameters: FSDP's whole tensors and flat ones."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import torch

from ddpcheck.probes.moments import flat_parameters
from ddpcheck.probes.moments.pieces import Held
from ddpcheck.probes.recording.patching import afterwards, once_imported
from ddpcheck.probes.recording.tensor_references import Reference, reference

FSDP2 = "torch.distributed.fsdp._fully_shard._fsdp_param"

_whole: dict[int, tuple[Reference, Reference]] = {}
"""By the id of a sharded parameter: it, and the whole tensor that its module has during a forward."""
_part: dict[int, Reference] = {}
"""By the id of such a whole tensor, the sharded parameter."""


def watch() -> None:
    """See from now on what takes the place of a sharded parameter."""
    once_imported(FSDP2, _watch)


def _watch() -> None:
    afterwards(getattr(sys.modules[FSDP2], "FSDPParam", None), "to_unsharded", _note, unless=_is_known)


def _is_known(parameter: Any) -> bool:
    """Whether the whole tensor of an FSDP parameter is the one that it had before, as it nearly always is."""
    known = _whole.get(id(getattr(parameter, "sharded_param", None)))
    return known is not None and known[1]() is getattr(parameter, "_unsharded_param", None)


def _note(parameter: Any) -> None:
    part, whole = parameter.sharded_param, parameter._unsharded_param
    _whole[id(part)] = reference(part), reference(whole)
    _part[id(whole)] = reference(part)
    reference(part).when_gone(partial(_whole.pop, id(part), None))
    reference(whole).when_gone(partial(_part.pop, id(whole), None))


def sharded(parameter: torch.Tensor) -> torch.Tensor:
    """The sharded parameter whose place this one has taken; or itself."""
    found = _part.get(id(parameter))
    part = found() if found is not None else None
    return parameter if part is None else part


def leaves(
    models: Iterable[tuple[int, Any]], held: Callable[[list[torch.Tensor]], list[list[Held]]]
) -> list[tuple[torch.Tensor, list[Held]]]:
    """Each leaf that a backward() may bring gradients to, and the pieces that these have.

    ``held`` knows the pieces of parameters.
    """
    roots = list(models)
    found: dict[int, torch.Tensor] = {}
    for _, root in roots:
        for parameter in map(sharded, root.parameters()):
            found.setdefault(id(parameter), parameter)
    known = dict(zip(found, held(list(found.values())), strict=True))
    flat = flat_parameters.wholes(root for _, root in roots)
    within = {id(one) for _, parts in flat for one, _ in parts if one is not None}
    made: list[tuple[torch.Tensor, list[Held]]] = []
    for key, parameter in found.items():
        whole = _whole.get(key)
        if whole is not None and (leaf := whole[1]()) is not None:
            made.append((leaf, [one.as_whole() for one in known[key]]))
        elif key not in within and not any(parameter is leaf for leaf, _ in flat):
            made.append((parameter, known[key]))
    for leaf, parts in flat:
        of_leaf = known.get(id(leaf), [])
        its = [
            (known[id(own)][0] if own is not None else of_leaf[place])._replace(offset=(0,), run=run, whole=True)
            for place, (own, run) in enumerate(parts)
            if own is not None or place < len(of_leaf)
        ]
        made.append((leaf, its))
    return made
