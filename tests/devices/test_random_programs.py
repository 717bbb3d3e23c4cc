"""Random programs: the simulation stops where real devices would, and computes what the CPU does."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import HealthCheck, given, note, settings
from hypothesis import strategies as st

from ddpcheck.device_simulation import operator_dispatch
from tests.devices.graphs import OPERATIONS, Program, Step, backward_is_refused, disagreement, draw, expected


class Drawn:
    """Choices that hypothesis makes, so that it can shrink a program."""

    def __init__(self, data: st.DataObject) -> None:
        self._data = data

    def choice(self, options: Sequence[Any], /) -> Any:
        return self._data.draw(st.sampled_from(list(options)))


@given(st.data())
@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@pytest.mark.long
def test_no_disagreement(data: st.DataObject) -> None:
    """Whatever hypothesis comes upon."""
    program = draw(Drawn(data))
    note(str(program))
    assert disagreement(program) is None


@pytest.mark.parametrize("index_place", ["cpu", "cuda:0", "cuda:1"])
@pytest.mark.parametrize("place", ["cpu", "cuda:0"])
@pytest.mark.parametrize(("target_learnt", "values_learnt"), [(True, False), (False, True), (True, True)])
def test_gradients_of_what_is_written_at_indices(
    place: str, index_place: str, target_learnt: bool, values_learnt: bool
) -> None:
    """Indices on another device than the tensor: the gradient of the values is refused, that of the tensor is not."""
    steps = (
        Step("leaf", "matrix", place=place, learnt=target_learnt),
        Step("leaf", "rows", place=index_place),
        Step("leaf", "matrix", place=place, learnt=values_learnt),
        Step("index written", "matrix", (0, 1, 2)),
    )
    program = Program(steps, "SGD", seed=0)
    devices, refused_at = expected(program)
    assert refused_at is None
    assert backward_is_refused(program, devices) == (values_learnt and index_place not in ("cpu", place))
    assert disagreement(program) is None


def test_no_disagreement_over_seeds() -> None:
    """The first two hundred programs of the long run, which hypothesis' taste for the simple does not shape."""
    assert {seed: why for seed in range(200) if (why := disagreement(draw(random.Random(seed))))} == {}


def test_programs_are_worth_running() -> None:
    """Hundreds of programs refuse every operation that can be refused, and a good part of them gets to its end."""
    programs = [draw(random.Random(seed)) for seed in range(2000)]
    refused = Counter()
    for program in programs:
        _, number = expected(program)
        refused["" if number is None else program.steps[number].what] += 1
    assert 0.3 < refused[""] / len(programs) < 0.7
    assert {name for name, each in OPERATIONS.items() if len(each.kinds) > 1} - set(refused) <= {
        "slice written",
        "copied",
    }


def _disagreements(number: int = 60) -> int:
    return sum(_disagrees(seed) for seed in range(number))


def _disagrees(seed: int) -> bool:
    try:
        return disagreement(draw(random.Random(seed))) is not None
    except RuntimeError:
        return True


def test_lenient_rules_are_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """A simulation that refuses nothing disagrees."""
    monkeypatch.setattr(operator_dispatch, "refusal", lambda *arguments: None)
    assert _disagreements() > 10


def test_strict_rules_are_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """A simulation that takes no CPU scalar disagrees."""
    monkeypatch.setattr(operator_dispatch, "refusal", lambda *arguments: "no")
    assert _disagreements() > 1


def test_gradients_that_stay_are_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """A simulation whose moves forget the way back disagrees."""

    def mover(storages: Any) -> Any:
        def moved(source: Any, device: Any) -> Any:
            result = source.clone()
            storages.put(result, device)
            return result

        return moved

    monkeypatch.setattr("ddpcheck.device_simulation.torch_functions.mover", mover)
    assert _disagreements() > 3


def test_long_run_prints_its_figure(capsys: pytest.CaptureFixture[str]) -> None:
    """The script of the long run says how many programs there were and how many disagreed, and fails if one did."""
    from tests.devices import soak_placement

    assert soak_placement.main(["--cases", "5", "--seed", "3"]) == 0
    assert "5 random programs" in (said := capsys.readouterr().out)
    assert " 0 disagreements" in said.replace("\n", " ")


def test_long_run_fails_on_a_disagreement(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """With a fault planted it names the seed."""
    from tests.devices import soak_placement

    monkeypatch.setattr(operator_dispatch, "refusal", lambda *arguments: None)
    assert soak_placement.main(["--cases", "8"]) == 1
    assert "seed " in capsys.readouterr().out
