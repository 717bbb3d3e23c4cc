"""How the results of a trainer are told: each fault once, and a training that fails is no check that is violated."""

from __future__ import annotations

from ddpcheck.conformance.results import Result, Results
from ddpcheck.vocabulary.model import Finding


def finding(check: str, subject: str) -> Finding:
    return Finding(
        check=check,
        severity="error",
        ranks=(0,),
        subject=subject,
        expected="one thing",
        found="another",
        advice="Fix.",
    )


def violated(name: str, check: str, subject: str, world_size: int = 2) -> Result:
    return Result(check=name, world_size=world_size, status="violated", findings=(finding(check, subject),))


def test_a_check_is_told_once_for_all_world_sizes() -> None:
    told = str(Results("fit", [violated("batch-count", "batch-count", "job.dataset", size) for size in (2, 3, 4)]))
    assert told.count("one thing") == 1
    assert "batch-count-2ranks violated\n" in told
    assert "and likewise batch-count with 3, 4 ranks" in told


def test_two_checks_are_told_each() -> None:
    names = ("batch-count", "shard-partition")
    told = str(Results("fit", [violated(name, name, "job.dataset") for name in names]))
    assert told.count("one thing") == 2


def test_a_training_that_failed_is_told_once_for_all_checks() -> None:
    """Whichever were to look at it: the fault is the training's."""
    names = ("gradient-oracle:in-order", "shard-partition:in-order")
    results = [violated(name, "rank-failure", "fit(job), in order", size) for name in names for size in (1, 2)]
    other = violated("gradient-oracle:clipping", "rank-failure", "fit(job), clipped")
    assert results[0].title == "gradient-oracle:in-order-1rank could not be judged: its training failed"
    told = str(Results("fit", [*results, other]))
    assert told.count("one thing") == 2
    assert "gradient-oracle:in-order-1rank could not be judged" in told
    assert "and likewise gradient-oracle:in-order with 2 ranks, shard-partition:in-order with 1, 2 ranks" in told


def test_a_check_of_failures_is_judged() -> None:
    """What `rank-failure` itself finds is its own."""
    assert violated("rank-failure", "rank-failure", "fit(job)").title == "rank-failure-2ranks violated"
    unexpected = Result(check="no-hang", world_size=2, status="violated", reason="held, although …")
    assert unexpected.title == "no-hang-2ranks violated"
