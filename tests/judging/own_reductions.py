"""Steps of a program that reduces gradients itself, written by hand: one tensor for each letter."""

from __future__ import annotations

from ddpcheck import evidence as ev
from ddpcheck.judging import step_alignment
from tests.judging.written import step


def digests(text):
    """One tensor for each letter; a dot stands for none."""
    return b"".join(ev.ABSENT if letter == "." else letter.encode() * step_alignment.WIDTH for letter in text)


def optimizer(number=0, names="ab", wrapper=None, values="vv", **more):
    parameters = [ev.Parameter(name=name, kind="float32[4]", wrapper=wrapper, reduced=True) for name in names]
    fields = {"optimizer": number, "kind": "SGD", "site": 4, "parameters": parameters, "sharded": False}
    return ev.Optimizer, {**fields, "values": digests(values[: len(names)]), **more}


def stepped(gradients, parameters="pp", number=0, state=None, **more):
    said = {key: digests(letters) for key, letters in (state or {}).items()}
    looked = {"gradients": digests(gradients), "parameters": digests(parameters), "state": said}
    return step(9, number=number, place=number, **looked, **more)


def averaged():
    """A rank that steps a copy of its own, as local SGD does."""
    return [optimizer(apart=True), stepped("gh")]


def carried(place, of="gradient", number=0, group="world", inside=False, alike=True, flat=False):
    given = {"of": of, "inside": inside, "group": group, "number": number - 5, "alike": alike, "flat": flat}
    return ev.Carried(place=place, offset=0, **given)


BOTH = [carried(0, number=0), carried(1, number=1)]
