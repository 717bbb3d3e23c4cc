"""Ranks of which each steps some parameters of a model and sends them to the others, written by hand."""

from __future__ import annotations

from ddpcheck import evidence as ev
from tests.judging.own_reductions import digests, stepped
from tests.judging.written import Made, ended

SITE = 4


def optimizer(names: str, number: int = 0) -> Made:
    each = [ev.Parameter(name=n, kind="float32[4]", wrapper=None, reduced=False, model=0, path=n) for n in names]
    fields = {"optimizer": number, "kind": "SGD", "site": SITE, "parameters": each, "sharded": False}
    return ev.Optimizer, {**fields, "values": digests("v" * len(names))}


def ran(own: str, other: str, made: list[str], held: list[str]) -> list[Made]:
    """One rank: what its steps make of its own parameters, and what it holds of the other's when each begins."""
    names = [ev.Held(name=name, kind="float32[4]") for name in own + other]
    records: list[Made] = [(ev.Model, {"model": 0, "kind": "Net", "site": 2, "held": names}), optimizer(own)]
    for number, (left, seen) in enumerate(zip(made, held, strict=True)):
        look = {"optimizer": 0, "number": number, "model": 0, "names": list(other), "among": 2, "values": digests(seen)}
        records += [(ev.Unstepped, look), stepped("g" * len(own), left, number)]
    return [*records, ended()]


def both(
    first: str = "cdef", second: str = "ghij", on_first: str = "vghi", on_second: str = "vcde"
) -> list[list[Made]]:
    """What each makes of its own, and what is held of it on the other rank when that one's steps begin."""
    return [ran("a", "b", list(first), list(on_first)), ran("b", "a", list(second), list(on_second))]
