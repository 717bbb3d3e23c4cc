"""Strategies for sequences of collectives, with what each rank ends up with.

PYTEST_DONT_REWRITE (its own assertions are for its authors)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

OPERATIONS = ("barrier", "broadcast", "all_reduce", "all_gather", "reduce", "gather", "scatter")

_REDUCTIONS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "SUM": lambda stacked: stacked.sum(0, dtype=stacked.dtype),
    "MAX": lambda stacked: stacked.amax(0),
    "MIN": lambda stacked: stacked.amin(0),
}
_ROOTED = ("broadcast", "reduce", "gather", "scatter")


@dataclass(frozen=True)
class Collective:
    """One collective, which all ranks run in its turn, with small whole numbers: their sums are exact."""

    operation: str
    world_size: int
    shape: tuple[int, ...] = (1,)
    dtype: torch.dtype = torch.float32
    root: int = 0
    reduction: str = "SUM"

    def __repr__(self) -> str:
        if self.operation == "barrier":
            return "barrier()"
        facts = [f"shape={self.shape}", f"dtype={self.dtype}"]
        if self.operation in _ROOTED:
            facts.append(f"root={self.root}")
        if "reduce" in self.operation:
            facts.append(f"op={self.reduction}")
        return f"{self.operation}({', '.join(facts)})"

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        printer.text(repr(self))  # which says less of what does not matter than hypothesis would

    def given(self, rank: int, part: int = 0) -> torch.Tensor:
        """What a rank gives: numbers that differ by rank, by place, and by part of what is scattered."""
        count = torch.Size(self.shape).numel()
        return ((torch.arange(count) * 3 + 5 * rank + 7 * part) % 11).to(self.dtype).reshape(self.shape)

    def run(self, rank: int, group: dist.ProcessGroup | None = None) -> list[torch.Tensor]:
        """Run it, in this rank, and return what the rank ends up with: nothing, one tensor, or one of each rank."""
        mine, is_root = self.given(rank), rank == self.root
        match self.operation:
            case "barrier":
                dist.barrier(group)
                return []
            case "broadcast":
                dist.broadcast(mine, self.root, group)
            case "all_reduce":
                dist.all_reduce(mine, self._op, group)
            case "reduce":
                dist.reduce(mine, self.root, self._op, group)
                return [mine] if is_root else []
            case "all_gather":
                found = [torch.empty_like(mine) for _ in range(self.world_size)]
                dist.all_gather(found, mine, group)
                return found
            case "gather":
                found = [torch.empty_like(mine) for _ in range(self.world_size)] if is_root else []
                dist.gather(mine, found or None, self.root, group)
                return found
            case "scatter":
                parts = [self.given(rank, part) for part in range(self.world_size)] if is_root else None
                dist.scatter(mine, parts, self.root, group)
            case other:
                raise ValueError(f"{other!r} is no collective of these: {', '.join(OPERATIONS)}")
        return [mine]

    @property
    def _op(self) -> Any:
        return getattr(dist.ReduceOp, self.reduction)

    def expected(self, rank: int) -> list[torch.Tensor]:
        """What the rank should end up with."""
        everyone = [self.given(other) for other in range(self.world_size)]
        match self.operation:
            case "barrier":
                return []
            case "broadcast":
                return [everyone[self.root]]
            case "all_gather":
                return everyone
            case "gather":
                return everyone if rank == self.root else []
            case "scatter":
                return [self.given(self.root, part=rank)]
        total = [_REDUCTIONS[self.reduction](torch.stack(everyone))]
        return total if self.operation == "all_reduce" or rank == self.root else []

    def check(self, rank: int, group: dist.ProcessGroup | None = None) -> None:
        """Run it, in this rank, and raise AssertionError where the rank ends up with something else."""
        found, expected = self.run(rank, group), self.expected(rank)
        if len(found) != len(expected) or not all(map(torch.equal, found, expected)):
            raise AssertionError(f"{self!r} on rank {rank}: expected {expected}, found {found}")


@st.composite
def _collective(
    draw: st.DrawFn, world_size: int, operations: Sequence[str], dtypes: Sequence[torch.dtype], max_side: int
) -> Collective:
    operation = draw(st.sampled_from(operations))
    if operation == "barrier":
        return Collective(operation, world_size)
    return Collective(
        operation,
        world_size,
        shape=tuple(draw(st.lists(st.integers(1, max_side), min_size=1, max_size=2))),
        dtype=draw(st.sampled_from(dtypes)),
        root=draw(st.integers(0, world_size - 1)) if operation in _ROOTED else 0,
        reduction=draw(st.sampled_from(tuple(_REDUCTIONS))) if "reduce" in operation else "SUM",
    )


def collectives(
    world_size: int,
    *,
    operations: Sequence[str] = OPERATIONS,
    dtypes: Sequence[torch.dtype] = (torch.float32, torch.int64, torch.float64, torch.int32),
    max_side: int = 4,
    min_size: int = 1,
    max_size: int = 5,
) -> SearchStrategy[list[Collective]]:
    """Sequences of collectives that all ranks can run in order, of any shape, dtype and root::

    @pytest.mark.ddp(world_size=2)
    @given(sequence=ds.collectives(2))
    def test_my_backend(ddp, sequence):
        for collective in sequence:
            collective.check(ddp.rank)
    """
    unknown = [operation for operation in operations if operation not in OPERATIONS]
    if unknown or not operations:
        raise ValueError(f"collectives(operations={list(operations)!r}): there are {', '.join(OPERATIONS)}")
    one = _collective(world_size, operations, dtypes, max_side)
    return st.lists(one, min_size=min_size, max_size=max_size)
