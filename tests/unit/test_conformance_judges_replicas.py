"""What is said of ranks that do not hold the same model, the same optimizer, or the same learning rate."""

from __future__ import annotations

import pytest
from ddpcheck.conformance.judges import replicas
from trained import micro, only, situation, step, stepped, trace, trained

from ddpcheck.checks.optimizer_sync import conformance as rates
from ddpcheck.evidence import training_record

BATCHES = [0, 1], [2, 3]
ONE = stepped(*BATCHES)


# --- initial-broadcast


def test_all_ranks_begin_alike():
    judged = replicas.judge_broadcast(trained("plain", ONE, ONE, ONE))
    assert (judged.checked, judged.findings) == (1, ())


def test_one_rank_begins_with_its_own():
    other = trace(micro([0, 1], parameters="q"), step())
    finding = only(replicas.judge_broadcast(trained("plain", ONE, ONE, other)).findings)
    assert finding.ranks == (2,)
    assert "in the first forward of rank 2" in finding.found


def test_no_forward_is_no_verdict():
    assert replicas.judge_broadcast(trained("plain", ONE, trace())).checked == 0


# --- gradient-sync and parameter-sync


@pytest.mark.parametrize("judge", [replicas.judge_gradients, replicas.judge_parameters])
def test_the_same_steps_hold(judge):
    judged = judge(trained("plain", ONE, ONE))
    assert (judged.checked, judged.findings) == (2, ())


def test_gradients_that_differ():
    finding = only(replicas.judge_gradients(trained("plain", ONE, stepped(*BATCHES, gradient=2.0))).findings)
    assert finding.subject == "first.weight, last.weight"
    assert "2 of 2 parameters to differ from rank 0's on rank 1 at step 0 (2 steps of 2 in all)" in finding.found
    assert finding.count == 2


def test_a_gradient_that_one_rank_has_not():
    assert replicas.judge_gradients(trained("plain", ONE, stepped(*BATCHES, gradient=None))).findings


def test_parameters_that_differ_after_the_second_step():
    other = trace(micro([0, 1]), step(0.0), micro([2, 3]), step(1.0, after=7.0))
    finding = only(replicas.judge_parameters(trained("plain", ONE, other)).findings)
    assert finding.step == 1
    assert "after every step" in finding.expected


@pytest.mark.parametrize("judge", [replicas.judge_gradients, replicas.judge_parameters])
def test_another_number_of_steps(judge):
    finding = only(judge(trained("plain", ONE, stepped([0, 1]))).findings)
    assert finding.found == "2 on rank 0, 1 on rank 1"
    assert finding.expected == "all ranks to make the same steps"


def test_models_that_differ_at_the_end():
    other = trace(micro([0, 1]), step(0.0), micro([2, 3]), step(1.0), returns=8.0)
    finding = only(replicas.judge_parameters(trained("plain", ONE, other)).findings)
    assert "when fit(job) returns" in finding.expected
    assert "although they were the same after the last step" in finding.found
    assert not replicas.judge_gradients(trained("plain", ONE, other)).findings


def test_a_rank_that_did_not_return_has_no_end_to_compare():
    other = trace(micro([0, 1]), step(0.0), micro([2, 3]), step(1.0), returns=None)
    assert not replicas.judge_parameters(trained("plain", ONE, other)).findings


# --- buffer-sync


def test_buffers():
    right = trace(micro([0], statistics="a"), micro([1], statistics="b"))
    other = trace(micro([2], statistics="a"), micro([3], statistics="c"))
    assert not replicas.judge_buffers(trained("batchnorm", right, right)).findings
    finding = only(replicas.judge_buffers(trained("batchnorm", right, other)).findings)
    assert "on rank 1 in 1 forward of 2, from forward 1 on" in finding.found
    assert replicas.judge_buffers(trained("batchnorm", right, trace())).checked == 0


# --- optimizer-sync


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
