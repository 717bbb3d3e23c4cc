"""The whole tensors that shards were cut from: what each rank held just before its model was sharded.

Nothing is broadcast there. Ranks whose models differ cut pieces of different
models; unless the pieces are written to afterwards, as by a load. What is cut
may be a part itself, as a tensor-parallel one. A write in place counts a
tensor's version up; what goes round that changes the elements: both are asked.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Any, NamedTuple

import torch

from ddpcheck.evidence import UNSEEN, WIDTH
from ddpcheck.probes.digests import fast_digests, readable_memory
from ddpcheck.probes.layouts import unwritten
from ddpcheck.probes.recording import recorder
from ddpcheck.probes.recording.tensor_references import reference


class Cut(NamedTuple):
    """A shard as it was right after it had been cut."""

    whole: bytes
    """The digest of what it was cut from; UNSEEN on a device."""
    shard: bytes
    version: int
    ranks: tuple[int, ...]
    """Those that cut one tensor among them."""


_cut: dict[int, Cut] = {}
"""By the id of the shard."""


class Cutting:
    """What a module holds before it is sharded, to be compared with what it holds afterwards."""

    def __init__(self, module: Any, ranks: tuple[int, ...]) -> None:
        self._module, self._ranks = module, ranks
        named = {name: one for name, one in _parameters(module) if not one.is_meta}
        self._before = dict(zip(named, _digests(named.values()), strict=True))
        self._lay = {name: _placements(one) for name, one in named.items()}

    def is_over(self) -> None:
        """The module is sharded now, each of its parameters by itself; what was sharded before lies as it did."""
        for name, shard in _parameters(self._module):
            if name in self._before and _placements(shard) != self._lay[name]:
                _remember(shard, self._before[name], self._ranks)

    def is_over_in_one(self) -> None:
        """The module is sharded now, all of its parameters side by side."""
        each = [self._before[name] for name in sorted(self._before)]
        whole = UNSEEN if UNSEEN in each else bytes.fromhex(fast_digests.text_digest(b"".join(each).hex()))
        for _, shard in _parameters(self._module) if each else ():
            if readable_memory.is_of_fsdp(shard) and id(shard) not in _cut:
                _remember(shard, whole, self._ranks)


def of(tensor: torch.Tensor) -> Cut | None:
    """What a shard was cut from, as long as nothing has been written to it since."""
    known = _cut.get(id(tensor))
    if known is None or unwritten.version(tensor) != known.version:
        return None
    if UNSEEN in (known.whole, known.shard):
        return known._replace(whole=UNSEEN)
    return known if fast_digests.digests([tensor]) == known.shard else None


def _remember(shard: torch.Tensor, whole: bytes, ranks: tuple[int, ...]) -> None:
    digest = _digests([shard])[0] if whole != UNSEEN else UNSEEN
    _cut[id(shard)] = Cut(whole, digest, unwritten.version(shard), ranks)
    reference(shard).when_gone(partial(_cut.pop, id(shard), None))


def _digests(tensors: Iterable[torch.Tensor]) -> list[bytes]:
    """Of what is in the CPU's memory: a look at that is not waited for."""
    listed = list(tensors)
    but = {place for place, one in enumerate(listed) if not readable_memory.is_on_cpu(one)}
    with recorder.silence():
        found = fast_digests.digests(listed, but=but)
    return [found[at : at + WIDTH] for at in range(0, len(found), WIDTH)]


def _placements(tensor: torch.Tensor) -> str:
    return str(tensor.placements) if readable_memory.is_dtensor(tensor) else ""  # type: ignore[attr-defined]


def _parameters(module: Any) -> Iterable[tuple[str, torch.Tensor]]:
    modules = module if isinstance(module, (list, tuple)) else [module]
    for number, one in enumerate(modules):
        for name, parameter in one.named_parameters():
            yield f"{number}.{name}", parameter
