"""The module of a finding's parameter, from the evidence of ranks: said where they agree, and where it is one alone."""

from __future__ import annotations

import pytest

from ddpcheck import evidence as ev
from ddpcheck.judging.model_parts import part_of
from ddpcheck.vocabulary.model import CallSite, Finding, ModelPart
from tests.judging.training_steps import optimizer
from tests.judging.written import world, wrapped

TENSORS = {
    "parameters": ev.Tensors(names=["blocks.0.q.weight", "blocks.0.q.bias", "scale"], digests=b"a" * 24),
    "buffers": ev.Tensors(names=["blocks.0.norm.mean", "blocks.0.q.seen"], digests=b"a" * 16),
}
NET, BLOCK, LINEAR, LIST, NORM = range(5)


def modules(lines=(11, 11, 5), block=10, wrapper=0):
    classes = [
        ev.PartClass(name="Net", users=True, site=4),
        ev.PartClass(name="Block", users=True, site=block),
        ev.PartClass(name="Linear", users=False),
        ev.PartClass(name="ModuleList", users=False),
        ev.PartClass(name="Norm", users=False),
    ]
    parts = {"": NET, "blocks": LIST, "blocks.0": BLOCK, "blocks.0.q": LINEAR, "blocks.0.norm": NORM}
    return ev.Modules, {"wrapper": wrapper, "classes": classes, "parts": parts, "lines": list(lines)}


def asked(the_world, subject, links=("wrapper 0",), ranks=(1,)):
    given = {"expected": "e", "found": "f", "advice": "a"}
    return part_of(the_world, Finding(ranks=ranks, subject=subject, links=links, **given))


def alike(*records):
    return world([wrapped(3, **TENSORS), *records], [wrapped(3, **TENSORS), *records])


def site(line):
    return CallSite(file="train.py", line=line, function="main")


Q = ModelPart(path="blocks.0.q", kind="Linear", within="Block", set_by=site(11))


@pytest.mark.parametrize(("subject", "expected"), [
    ("blocks.0.q.bias", Q),
    ("blocks.0.q.seen", Q),  # a library's module has set its buffers where it has set its parameters
    ("scale", ModelPart(path="", kind="Net", set_by=site(5))),
    ("blocks.0.norm.mean", ModelPart(path="blocks.0.norm", kind="Norm", within="Block", defined=site(10))),
    ("the SGD", None),
    ("blocks.0.q", None),
    ("blocks.0.q.other", None),
])  # fmt: skip
def test_by_the_name_of_the_tensor(subject, expected):
    assert asked(alike(modules()), subject) == expected
    assert asked(alike(modules()), subject, links=()) == expected


def test_evidence_without_modules_says_nothing():
    assert asked(alike(), "scale") is None


def test_another_wrapper():
    """A finding says which wrappers it is about."""
    assert asked(alike(modules()), "scale", links=("wrapper 1",)) is None
    assert asked(alike(modules(wrapper=1)), "scale") is None


def test_ranks_that_have_built_other_models():
    """The lines of one are not told for all."""
    ranks = [[wrapped(3, **TENSORS), modules((line, line, 5))] for line in (11, 12)]
    assert asked(world(*ranks), "blocks.0.q.bias") is None
    assert asked(world(*ranks), "scale") is not None


def test_two_wrappers_with_the_same_names():
    """Without a link it may be either of them, and that is said where both come from the same line."""
    both = [wrapped(3, **TENSORS), modules(), wrapped(6, **TENSORS, wrapper=1)]
    apart = world(*([*both, modules((20, 20, 21), wrapper=1)] for _ in range(2)))
    assert asked(apart, "scale", links=()) is None
    assert asked(apart, "scale", links=("wrapper 1",)).set_by == site(21)
    same = world(*([*both, modules(wrapper=1)] for _ in range(2)))
    assert asked(same, "scale", links=()).set_by == site(5)


def test_what_no_wrapper_has():
    """Its name is its module's class, not a path."""
    loose = ev.Parameter(name="Linear.weight", kind="float32[1]", wrapper=None, reduced=False, site=8)
    other = ev.Parameter(name="Linear.weight", kind="float32[1]", wrapper=None, reduced=False, site=9)
    one = alike(optimizer(0, 4, "a", parameters=[loose]))
    assert asked(one, "Linear.weight", ("optimizer 0",)) == ModelPart(path="", kind="Linear", set_by=site(8))
    assert asked(one, "Linear.weight", ("optimizer 1",)) is None
    assert asked(alike(optimizer(0, 4, "ab", parameters=[loose, other])), "Linear.weight", ("optimizer 0",)) is None


def test_what_has_come_into_a_wrapped_module():
    late = ev.Parameter(name="head.weight", kind="float32[1]", wrapper=0, reduced=False, late=True, site=8)
    one = alike(modules(), optimizer(0, 4, "a", parameters=[late]))
    found = asked(one, "head.weight", ("optimizer 0", "wrapper 0"))
    assert found == ModelPart(path="head", kind="", set_by=site(8))
