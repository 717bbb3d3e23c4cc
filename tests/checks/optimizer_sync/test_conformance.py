"""What is said of ranks that do not hold the same optimizer, or the same learning rate."""

from __future__ import annotations

import pytest

from ddpcheck.checks.optimizer_sync import conformance as rates
from ddpcheck.evidence import training_record
from tests.judging.trained import micro, only, situation, step, stepped, trace, trained

BATCHES = [0, 1], [2, 3]
ONE = stepped(*BATCHES)


def test_the_same_state_holds():
    judged = rates.judge_state(trained("plain", ONE, ONE))
    assert (judged.checked, judged.findings) == (2, ())


def test_learning_rates_that_differ():
    finding = only(rates.judge_state(trained("plain", ONE, stepped(*BATCHES, rate=0.2))).findings)
    assert "0.1 on rank 0, 0.2 on rank 1 at step 0" in finding.found
    assert finding.subject == "the learning rate"


def test_moments_that_differ():
    finding = only(rates.judge_state(trained("plain", ONE, stepped(*BATCHES, moments="n"))).findings)
    assert finding.found == "another state than rank 0's on rank 1 after step 0"


def with_rates(*found, evaluations=()):
    """A step at each of these rates; what a plateau's scheduler was stepped with."""
    stepped_with = [training_record.Scheduled(value=value) for value in evaluations]
    return trace(*[fact for rate in found for fact in (micro([0]), step(rate=rate))], stepped_with)


@pytest.mark.parametrize(
    ("found", "said"),
    [
        ((0.1, 0.09, 0.081), ""),
        ((0.1, 0.09), ""),
        (
            (0.1, 0.081, 0.0656),
            "0.081, which is that of step 2, on 2 ranks, with AdamW, and a learning rate that changes at every step",
        ),
        ((0.1, 0.05, 0.025), "0.05, on 2 ranks, with AdamW, and a learning rate that changes at every step"),
    ],
)
def test_a_schedule(found, said):
    judged = rates.judge_schedule(trained("schedule", *[with_rates(*found)] * 2), [0.1, 0.09, 0.081])
    assert judged.checked == len(found)
    assert [finding.found for finding in judged.findings] == ([said] if said else [])


PLATEAU = situation("plateau", epochs=3)


@pytest.mark.parametrize(
    ("found", "said"),
    [
        ((0.1, 0.1, 0.05), ""),
        ((0.1, 0.1, 0.1, 0.1, 0.05, 0.05), ""),
        ((0.1, 0.05, 0.0125), "0.5 times, on 2 ranks (the rates are 0.1, 0.05, 0.0125)"),
        ((0.1, 0.1, 0.1), "1 times, on 2 ranks"),
    ],
)
def test_a_plateau(found, said):
    judged = rates.judge_plateau(trained(PLATEAU, *[with_rates(*found)] * 2))
    assert judged.checked == 3
    assert bool(judged.findings) == bool(said)
    if said:
        assert said in only(judged.findings).found


@pytest.mark.parametrize("found", [(0.1, 0.1), (0.1, 0.1, 0.1, 0.05)])
def test_steps_that_are_no_epochs_are_told(found):
    """A trainer that leaves epochs out where it evaluates is not one of which nothing can be said."""
    finding = only(rates.judge_plateau(trained(PLATEAU, *[with_rates(*found)] * 2)).findings)
    assert finding.expected == "equally many steps in each of 3 epochs, with an evaluation after each"


def test_a_plateau_that_each_rank_sees_for_itself():
    right, other = (with_rates(0.1, 0.1, 0.05, evaluations=values) for values in ((3.0, 2.0), (3.0, 2.5)))
    assert not rates.judge_plateau(trained(PLATEAU, right, right)).findings
    finding = only(rates.judge_plateau(trained(PLATEAU, right, other)).findings)
    assert finding.found == "2 on rank 0, 2.5 on rank 1, after evaluation 1"
    assert finding.ranks == (1,)
