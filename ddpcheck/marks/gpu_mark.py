"""What ``@pytest.mark.gpu`` may say, and the sentence for everything else."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from ddpcheck.marks.ddp_mark import BadMark

if TYPE_CHECKING:
    import pytest


class GpuMark(NamedTuple):
    """A valid ``gpu`` mark."""

    number: int | None = None
    """How many GPUs the test is given; None for one each rank, and one for a test without ranks."""
    real: str = ""
    """Why simulated devices are not enough; empty where they are."""


def read(marks: Iterable[tuple[Sequence[Any], dict[str, Any]]]) -> GpuMark | None:
    """Read the ``gpu`` marks of a test, the closest first; None where there is none. Raises BadMark."""
    said: dict[str, Any] = {}
    found = False
    for args, kwargs in marks:
        found = True
        named = dict(zip(("count",), args, strict=False)) | kwargs
        shown = f"@pytest.mark.gpu({', '.join([*map(repr, args), *(f'{k}={v!r}' for k, v in kwargs.items())])})"
        if len(args) > 1 or not named.keys() <= {"count", "real"}:
            raise BadMark(f"{shown}: it takes a number of GPUs, such as gpu(2), and real='why', and nothing else.")
        number = named.get("count", 1)
        if isinstance(number, bool) or not isinstance(number, int) or number < 1:
            raise BadMark(f"{shown}: it takes a number of GPUs above 0, such as 2.")
        if not isinstance(named.get("real", ""), str):
            raise BadMark(f"{shown}: say in a few words why simulated devices are not enough, such as real='NCCL'.")
        for name, value in named.items():
            said.setdefault(name, value)
    return GpuMark(said.get("count"), said.get("real", "")) if found else None


def gpu_mark_of(item: pytest.Item) -> GpuMark | None:
    """What a test says of the GPUs that it needs, if it does."""
    return read((mark.args, dict(mark.kwargs)) for mark in item.iter_markers("gpu"))


def has_ranks(item: pytest.Item) -> bool:
    """Whether a test runs in ranks, and not in the pytest process."""
    return item.get_closest_marker("ddp") is not None
