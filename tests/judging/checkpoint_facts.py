"""What ranks say of checkpoints in assertions, written by hand, and what the judges make of it."""

from __future__ import annotations

import msgspec

from ddpcheck import evidence as ev
from ddpcheck.evidence.training_state import Failure, Value
from ddpcheck.vocabulary.model import Finding
from tests.judging.judged import asserted


def judged(check: str, *facts: msgspec.Struct | None) -> tuple[Finding, ...]:
    """The findings on these facts, one for each rank, sent as they would be."""
    found = asserted(check, [None if fact is None else msgspec.to_builtins(fact) for fact in facts])
    assert isinstance(found, tuple)
    return found


def weight(text: str, kind: str = "parameter", device: str = "cpu") -> Value:
    return Value(kind=kind, digest=text, shown=f"float32[2] {text}", device=device, form="float32[2]")  # type: ignore[arg-type]


def failure(message: str, **more: object) -> Failure:
    return Failure(**({"doing": "load", "kind": "RuntimeError", "message": message} | more))  # type: ignore[arg-type]


def joined(rank: int) -> bytes:
    """The records of a rank that does nothing."""
    return ev.frame(ev.Joined(n=1, at=1.0, rank=rank, world_size=2, token="t", backend="gloo", local_rank=rank, site=0))
