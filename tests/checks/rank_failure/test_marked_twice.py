"""Gradients that were complete more than once: the checkpoint() that it comes of, by the program's text."""

from __future__ import annotations

import pytest

from ddpcheck import evidence as ev
from ddpcheck.checks.registry import judge_of
from ddpcheck.judging.world import World
from tests.judging.written import raised, rank, wrapped

judge = judge_of("rank-failure", "run")

TWICE = "Expected to mark a variable ready only once. […] Parameter at index 7 has been marked as ready twice."
EACH = "def forward(self, x):\n    for block in self.blocks:\n        x = checkpoint(block, x, use_reentrant=True)\n"
SHARED = "def forward(self, x):\n    for _ in range(3):\n        x = checkpoint(self.layer, x, use_reentrant=self.on)\n"
ONCE = "def forward(self, x):\n    return checkpoint(self.body, x)\n"
WITHOUT = ONCE.replace("x)", "x, use_reentrant=False)")
OWN = "def checkpoint(model, path):\n    torch.save(model, path)\n\ncheckpoint(model, path)\n"


def failed(text, message=TWICE, **wrapper):
    """What is said of a program with this text, that raised in its backward."""
    site = {"id": 200, "file": "net.py", "line": 1, "function": "<module>", "text": "", "first": 1, "body": text}
    one = rank(0, [(ev.Site, site), wrapped(4, **wrapper), raised(message, 8)], exit_code=1)
    (finding,) = judge(World([one, rank(1, [])], 2)).findings
    return finding


def test_unused_parameters_are_looked_for_where_a_checkpoint_hides_them():
    """Each module once, and find_unused_parameters=True: that is left out, or the reentrant way."""
    finding = failed(EACH, find_unused=True)
    assert finding.cause.startswith("find_unused_parameters=True looks for parameters in the graph")
    assert (str(finding.where), finding.proof[0][1].line) == ("net.py:3 in forward", 4)
    assert "or leave out find_unused_parameters=True" in finding.advice


@pytest.mark.parametrize("unused", [False, True])
def test_one_module_in_every_turn(unused):
    """It is the same one: the loop's variable has no part in it."""
    finding = failed(SHARED, find_unused=unused)
    assert "with use_reentrant=self.on (net.py:3) is given the same module in every turn" in finding.cause
    assert "static_graph=True" in finding.advice


def test_another_module_in_every_turn_is_not_the_same():
    """Nor is one that is checkpointed once."""
    for text in (EACH, ONCE):
        assert "every turn" not in failed(text).cause
        assert "a module that is used there more than once" in failed(text).cause


@pytest.mark.parametrize("text", [WITHOUT, OWN, "x = 1\n"], ids=["not reentrant", "a function of its own", "none"])
def test_without_a_checkpoint_none_is_named(text):
    """Then it may be something else as well."""
    finding = failed(text, find_unused=True)
    assert finding.cause.startswith("a parameter's gradient was complete more than once in one backward: it was used")
    assert finding.where.line == 8


def test_another_error_is_none_of_it():
    """A program with a checkpoint may fail for other reasons."""
    assert "checkpoint" not in failed(SHARED, message="shapes cannot be multiplied").cause
