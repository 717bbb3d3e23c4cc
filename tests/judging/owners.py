"""Two ranks of which each steps one parameter of a model and sends it to the other one, written by hand."""

from __future__ import annotations

from ddpcheck import evidence as ev
from tests.judging.own_reductions import digests, stepped
from tests.judging.written import Made, ended

SITE = 4


def optimizer(name: str, number: int = 0) -> Made:
    one = ev.Parameter(name=name, kind="float32[4]", wrapper=None, reduced=False, model=0, path=name)
    fields = {"optimizer": number, "kind": "SGD", "site": SITE, "parameters": [one], "sharded": False}
    return ev.Optimizer, {**fields, "values": digests("v")}


def ran(own: str, other: str, made: str, held: str, more: tuple[Made, ...] = ()) -> list[Made]:
    """One rank: what its steps make of its own parameter, and what it holds of the other's when each begins."""
    model = ev.Model, {"model": 0, "kind": "Net", "site": 2, "held": [ev.Held(name=n, kind="x") for n in "ab"]}
    records: list[Made] = [model, optimizer(own), *more]
    for number, (left, seen) in enumerate(zip(made, held, strict=True)):
        look = {"optimizer": 0, "number": number, "model": 0, "names": [other], "among": 2, "values": digests(seen)}
        records += [(ev.Unstepped, look), stepped("g", left, number)]
    return [*records, ended()]


def both(
    first: str = "cdef", second: str = "ghij", on_first: str = "vghi", on_second: str = "vcde"
) -> list[list[Made]]:
    """What each makes of its own, and what is held of it on the other rank when that one's steps begin."""
    return [ran("a", "b", first, on_first), ran("b", "a", second, on_second)]
