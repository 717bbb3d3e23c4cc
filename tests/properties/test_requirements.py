"""What properties need of hypothesis, and how its settings and notes fit ranks."""

from __future__ import annotations

import datetime
import sys
import types
import unittest

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule

from ddpcheck.examples.state_machines import run_state_machine
from ddpcheck.properties.engine import _fitting, _noted, _runner
from ddpcheck.properties.requirements import trouble


class Machine(RuleBasedStateMachine):
    @rule()
    def step(self):
        pass


@given(st.integers())
def a_property(n):
    pass


def test_a_property_that_can_run():
    assert trouble(a_property, None) == ""


@pytest.mark.parametrize("version", ["6.130.9", "6.9.0", "5.49.0"])
def test_hypothesis_that_is_too_old(monkeypatch, version):
    monkeypatch.setitem(sys.modules, "hypothesis", types.SimpleNamespace(__version__=version))
    said = trouble(a_property, None)
    assert said.startswith(f"@given on a ddp test needs hypothesis 6.131 or newer, and this is {version}: pip install")


def test_classes_of_unittest():
    assert "write it as a function, or in a plain class" in trouble(a_property, unittest.TestCase)
    said = trouble(Machine.TestCase.runTest, Machine.TestCase)
    assert "Machine.TestCase draws other steps in every rank" in said
    assert "ddpcheck.run_state_machine(Machine, data)" in said


@pytest.mark.parametrize(
    ("backend", "runs"), [("hypothesis", True), ("hypothesis-urandom", True), ("crosshair", False)]
)
def test_backends(backend, runs):
    function = types.SimpleNamespace(_hypothesis_internal_use_settings=types.SimpleNamespace(backend=backend))
    assert (trouble(function, None) == "") is runs


def test_a_machine_without_draws():
    with pytest.raises(TypeError, match=r"needs what st.data\(\) draws.*was given 3"):
        run_state_machine(Machine, 3)


# --- settings and notes


def test_the_default_deadline_is_one_process_s():
    """It goes; one of the user's own stays, and so does none."""
    second = datetime.timedelta(seconds=1)
    assert _fitting(settings(deadline=200), explain=False).deadline is None
    assert _fitting(settings(deadline=second), explain=False).deadline == second
    assert _fitting(settings(deadline=None), explain=False).deadline is None


def test_explaining_is_asked_for():
    everything = settings(phases=list(Phase), deadline=None)
    assert Phase.explain not in _fitting(everything, explain=False).phases
    assert set(_fitting(everything, explain=False).phases) == set(Phase) - {Phase.explain}
    assert _fitting(everything, explain=True) is everything


@pytest.mark.parametrize(
    ("noted", "shown"),
    [
        ([], []),
        ([("a", "b"), ("a", "b")], ["a", "b"]),
        ([("a", "b"), ("a", "c")], ["a", "rank 0: b", "rank 1: c"]),
        ([("a",), ("a", "c")], ["a", "rank 1: c"]),
        ([(), ("c",)], ["rank 1: c"]),
        (
            [("a", "x"), ("b", "x"), ("a", "x")],
            ["rank 0: a", "rank 0: x", "rank 1: b", "rank 1: x", "rank 2: a", "rank 2: x"],
        ),
    ],
)
def test_notes_of_all_ranks(noted, shown):
    """What all have said is said once, up to where they part."""
    assert list(_noted(noted)) == shown


def test_hooks_around_an_example_are_the_ranks():
    class Hooked:
        def setup_example(self):
            raise AssertionError("in the pytest process")

    plain = object()
    assert _runner(plain) is plain
    stand_in = _runner(Hooked())
    assert not hasattr(stand_in, "setup_example")
    assert "Hooked, one in each rank" in repr(stand_in)
