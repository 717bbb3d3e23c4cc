"""When parameters are looked at because the program has exchanged something between two steps."""

from __future__ import annotations

import pytest
import torch

from ddpcheck.probes.optimizers import after_exchanges


class Written:
    def __init__(self):
        self.records = []

    def next(self):
        return {"n": len(self.records), "at": 0.0}

    def write(self, record):
        self.records.append(record)


class Exchanges:
    """A window in which something was exchanged before some of the steps."""

    def __init__(self, line):
        self.line = line

    def exchanges(self):
        return ([self.line], ["world"]) if self.line else ([], [])


def looked(lines):
    """The steps at which it looks, of steps before which something was exchanged at these lines."""
    looks, writer = after_exchanges.Looks(), Written()
    for number, line in enumerate(lines):
        looks.entered(writer, Exchanges(line), 0, number, [torch.zeros(3)], set())
    return [one.number for one in writer.records]


@pytest.mark.parametrize(("lines", "expected"), [
    ([0, 0, 0, 7, 0, 0, 7, 0], [3, 6]),
    ([0] + [7] * 20, [1, 2]),  # before every step: gradients
    ([0] + [7, 7, 7, 0] * 2, [1, 2, 5, 6]),
    ([0, 7] * 20, [1, 3, 5, 7, 9, 11, 13, 15]),  # now and then, for ever
    ([7, 0, 0], []),  # before the first step: how models are made the same
])  # fmt: skip
def test_a_few_looks(lines, expected):
    """At what is done now and then."""
    assert looked(lines) == expected
