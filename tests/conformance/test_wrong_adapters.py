"""An adapter that is wrong gets a sentence that says what is wrong with it, and its library is not blamed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from fixtures.trainers import plain, wrong
from tests.conformance.conducting import Conductor, conducting


@pytest.fixture(scope="module")
def conductor(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Conductor]:
    with conducting(tmp_path_factory.mktemp("wrong"), "fixtures.trainers.wrong", wrong.ADAPTERS, timeout=4.0) as one:
        yield one


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("trains_nothing", "no forward of job.model in training mode and with gradients on ranks 0 and 1"),
        ("evaluates_only", "ranks 0 and 1 called it in evaluation mode, or under no_grad"),
        ("forgets_the_loss", "job.loss was never called on ranks 0 and 1, in 9 forwards"),
        ("goes_backward_from_another_loss", "no backward went through a value of job.loss"),
        ("steps_other_parameters", "on ranks 0 and 1 an optimizer was stepped that has other parameters"),
        ("never_steps", "no optimizer step over its parameters on ranks 0 and 1"),
        ("changes_nothing", "no step changed any parameter on ranks 0 and 1"),
        ("returns_early", "it returned after 3 batches of 9 on ranks 0 and 1"),
        ("hangs", "timed out after 4 s with ranks 0 and 1 still running"),
        ("raises", "KeyError: 'no such layer'"),
        ("leaves", "rank 1 failed first: it left the test by SystemExit"),
        ("crashes", "rank 1 failed first: it was killed by SIGSEGV"),
    ],
)
@pytest.mark.few(4)
def test_the_adapter_is_told(conductor: Conductor, name: str, words: str) -> None:
    """The check `adapter` says it, and no other check says anything."""
    result = conductor.result(name, "adapter")
    assert result.status == "violated"
    assert words in result.text
    assert "fix" in result.text
    other = conductor.result(name, "gradient-oracle")
    assert other.status == "not-checked"
    assert other.reason == "the adapter has to be right first: see the check adapter"


@pytest.mark.long
def test_stacks_show_the_adapter_alone(conductor: Conductor) -> None:
    """Where a training hangs, the lines are the adapter's and its libraries', not those of this package."""
    text = conductor.result("hangs", "adapter").text
    assert "wrong.py" in text
    assert "in hangs" in text
    assert "ddpcheck/conformance" not in text
    assert "ddpcheck/probes" not in text


def test_tracebacks_show_the_adapter_alone(conductor: Conductor) -> None:
    """Where it raises, its own lines are shown."""
    text = conductor.result("raises", "adapter").text
    assert 'raise KeyError("no such layer")' in text
    assert "getattr(importlib" not in text


@pytest.mark.long
def test_one_that_swallows_exceptions_is_told(conductor: Conductor) -> None:
    """It trains as it should, and returns where it should not."""
    assert conductor.result("swallows_exceptions", "adapter").status == "held"
    result = conductor.result("swallows_exceptions", "rank-failure")
    assert result.status == "violated"
    assert "fit returned on rank 1, although job.loss had raised there" in result.text


@pytest.mark.long
def test_one_that_ignores_the_precision_is_told(conductor: Conductor) -> None:
    """Its updates are right to within the lower precision, and were computed in the higher one."""
    for name in ("ignores_precision", "disables_autocast"):
        result = conductor.result(name, "gradient-oracle:bfloat16")
        assert result.status == "violated"
        assert "float32 in 6 of 6 forwards on ranks 0 and 1" in result.text
    assert "torch.autocast(job.device.type, dtype=torch.bfloat16)" in result.text
    assert conductor.result("ignores_precision", "gradient-oracle:float32").status == "held"


def test_parameters_of_another_precision_are_not_compared(conductor: Conductor) -> None:
    """They are no fault, and nothing that the oracle could take a step with."""
    result = conductor.result("halves_parameters", "gradient-oracle:bfloat16")
    assert result.status == "not-checked"
    assert result.reason == "the parameters that are stepped have another dtype, or shape, than job.model's"


@pytest.mark.long
def test_one_that_stays_on_the_cpu_shows_nothing_of_devices(conductor: Conductor) -> None:
    """What was never on a simulated GPU is not held to be at the right place."""
    for check in ("checkpoint-map-location:devices", "device-placement:devices"):
        result = conductor.result("stays_on_the_cpu", check)
        assert result.status == "not-checked"
        assert result.reason == "model and batches stayed on the CPU: put them on job.device"
    result = conductor.result("stays_on_the_cpu_on_rank_1", "device-placement:devices")
    assert result.status == "violated"


@pytest.mark.long
def test_nobody_waits_for_all_trainings_that_hang(conductor: Conductor) -> None:
    """After three of them no further one is tried, and those that are not say why."""
    assert conductor.result("hangs_often", "adapter").status == "held"
    result = conductor.result("hangs_often", "no-hang")
    assert result.status == "violated"
    assert [finding.check for finding in result.findings] == ["no-hang"] * 3
    untried = conductor.result("hangs_often", "gradient-oracle:accumulation-clipping")
    assert untried.status == "not-checked"
    assert "hung: fix these first, no further training was tried" in untried.reason


@pytest.mark.long
def test_what_is_not_supported_is_not_checked(conductor: Conductor) -> None:
    """The adapter's own words are the reason; everything else is judged."""
    nothing = conductor.result("supports_nothing", "adapter")
    assert nothing.status == "violated"
    assert "ddpcheck.NotSupported on all ranks: there is no training in it" in nothing.text
    other = conductor.result("supports_nothing", "gradient-oracle")
    assert (other.status, other.reason) == ("not-checked", "not supported: there is no training in it")
    some = conductor.result("supports_most", "gradient-oracle:accumulation")
    assert (some.status, some.reason) == ("not-checked", "not supported: it has no gradient accumulation")
    assert conductor.result("supports_most", "gradient-oracle:clipping").status == "held"


@pytest.mark.long
def test_an_adapter_that_is_right_is_told_nothing(tmp_path: Path) -> None:
    """The twin of all of them."""
    with conducting(tmp_path, plain.__name__, ["fit"]) as conductor:
        for check in ("adapter", "rank-failure", "gradient-oracle:bfloat16", "checkpoint-map-location:devices"):
            result = conductor.result("fit", check)
            assert (result.status, result.findings) == ("held", ())
