"""Optimizers and their steps, written by hand: one tensor for each letter."""

from __future__ import annotations

from ddpcheck import evidence as ev
from ddpcheck.judging import step_alignment
from tests.judging.written import step


def digests(text):
    """One tensor for each letter."""
    return b"".join(letter.encode() * step_alignment.WIDTH for letter in text)


def optimizer(number, line, values="ab", wrapper=0, **more):
    """An optimizer of one parameter for each value."""
    parameters = [
        ev.Parameter(name=f"w{place}", kind="float32[1]", wrapper=wrapper, reduced=True) for place in range(len(values))
    ]
    fields = {"optimizer": number, "kind": "SGD", "site": line, "parameters": parameters, "sharded": False}
    return ev.Optimizer, {**fields, "values": digests(values), **more}


def stepped(line, gradients, parameters="cd", number=0, of=0, **more):
    looked = {"gradients": digests(gradients), "parameters": digests(parameters)}
    return step(line, optimizer=of, number=number, place=number, **looked, **more)
