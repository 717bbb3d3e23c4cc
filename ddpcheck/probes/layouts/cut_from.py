"""The whole tensors that shards were cut from: what each rank held just before its model was sharded.

Nothing is broadcast there. Ranks whose models differ cut pieces of different
models; unless the pieces are written to afterwards, as by a load.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Any, NamedTuple

import torch

from ddpcheck.evidence import ABSENT, UNSEEN, WIDTH
from ddpcheck.probes.digests import fast_digests, readable_memory
from ddpcheck.probes.recording import recorder
from ddpcheck.probes.recording.tensor_references import reference


class Cut(NamedTuple):
    """A shard as it was right after it had been cut."""

    whole: bytes
    """The digest of what it was cut from."""
    shard: bytes
    ranks: tuple[int, ...]
    """Those that cut one tensor among them."""


_cut: dict[int, Cut] = {}
"""By the id of the shard."""


class Cutting:
    """What a module holds before it is sharded, to be compared with what it holds afterwards."""

    def __init__(self, module: Any, ranks: tuple[int, ...]) -> None:
        self._module, self._ranks = module, ranks
        with recorder.silence():
            self._before = self._digests(_plain(module))

    @staticmethod
    def _digests(named: dict[str, torch.Tensor]) -> dict[str, bytes]:
        found = fast_digests.digests(named.values())
        return {name: found[p * WIDTH : (p + 1) * WIDTH] for p, name in enumerate(named)}

    def is_over(self) -> None:
        """The module is sharded now, each of its parameters by itself."""
        with recorder.silence():
            after = {name: p for name, p in _parameters(self._module) if name in self._before}
            digests = self._digests(after)
        for name, shard in after.items():
            _remember(shard, Cut(self._before[name], digests[name], self._ranks))

    def is_over_in_one(self) -> None:
        """The module is sharded now, all of its parameters side by side."""
        with recorder.silence():
            whole = b"".join(self._before[name] for name in sorted(self._before))
            digest = bytes.fromhex(fast_digests.text_digest(whole.hex())) if whole else ABSENT
            after = dict(_parameters(self._module))
            digests = self._digests(after)
        for name, shard in after.items():
            if readable_memory.is_of_fsdp(shard) and id(shard) not in _cut:
                _remember(shard, Cut(digest, digests[name], self._ranks))


def of(tensor: torch.Tensor) -> Cut | None:
    """What a shard was cut from, as long as nothing has been written to it since."""
    known = _cut.get(id(tensor))
    if known is None or UNSEEN in (known.whole, known.shard):
        return None
    return known if fast_digests.digests([tensor]) == known.shard else None


def _remember(shard: torch.Tensor, cut: Cut) -> None:
    _cut[id(shard)] = cut
    reference(shard).when_gone(partial(_cut.pop, id(shard), None))


def _plain(module: Any) -> dict[str, torch.Tensor]:
    """The parameters that are whole, and in the CPU's memory: a look at them is not waited for."""
    return {
        name: one
        for name, one in _parameters(module)
        if not readable_memory.unseen(one) and readable_memory.is_on_cpu(one)
    }


def _parameters(module: Any) -> Iterable[tuple[str, torch.Tensor]]:
    modules = module if isinstance(module, (list, tuple)) else [module]
    for number, one in enumerate(modules):
        for name, parameter in one.named_parameters():
            yield f"{number}.{name}", parameter
