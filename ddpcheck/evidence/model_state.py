"""A model's tensors, as a rank holds them at a line of a test."""

from __future__ import annotations

from ddpcheck.vocabulary.model import Struct


class TensorFacts(Struct, frozen=True, kw_only=True):
    """One tensor, as one rank holds it."""

    digest: str = ""
    dtype: str = ""
    shape: tuple[int, ...] = ()
    present: bool = True
    """False for a parameter without a gradient."""
    holders: tuple[int, ...] | None = None
    """The ranks that hold the same elements, as is declared; None of a plain model, whose tensors all ranks hold, and
    empty where nobody says."""
    placements: tuple[str, ...] = ()
    """Of a DTensor, as in a Layout."""


class ModelFacts(Struct, frozen=True, kw_only=True):
    """A model's tensors, and how DDP has treated the model, as one rank sees it."""

    tensors: dict[str, TensorFacts]
    wrapped: bool = True
    atol: float = 0.0
    rtol: float = 0.0

    def compared(self, world_size: int) -> int:
        """How many of these tensors this rank holds together with others, with which they are compared."""
        alike = [one for one in self.tensors.values() if one.present]
        if world_size > 1:
            alike = [one for one in alike if one.holders is None or len(one.holders) > 1]
        return len(alike)


class WorstDifference(Struct, frozen=True, kw_only=True):
    """Where a rank's tensor is farthest from the reference's."""

    size: float
    place: tuple[int, ...]
    mine: str
    reference: str
    elements: int
    """How many elements differ by more than is allowed."""
    of: int
    scale: float | None = None
    """The one factor between the two, if there is one."""
