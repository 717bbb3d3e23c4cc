"""Each faulty trainer is found out by the checks that fit its mistake, in words that fit it; its twin is not."""

from __future__ import annotations

from collections import Counter

import pytest

from ddpcheck.checks.gradient_oracle import conformance as updates
from ddpcheck.conformance.suite_checks import BY_CHECK
from fixtures.trainers.faulty.fault import Fault
from fixtures.trainers.faulty.registry import FAULTS
from fixtures.trainers.plain import Trainer
from fixtures.trainers.unusual import UNUSUAL, AutocastWithin
from tests.conformance import table
from tests.conformance.workshop import Workshop

ROWS = {"C": range(1, 19), "D": (2, 3, 4, 7, 11, 13, 14, 16, 17, 18, 19, 21, 22),
        "F": (2, 4, 6, 7, 8, 10, 11, 13, 14, 15, 16, 17, 18, 19, 20, 21), "G": (2, 3, 6, 7, 8),
        "H": (6,), "I": range(1, 13), "L": (1, 2, 5)}  # fmt: skip

TOLD = {
    "C01-TimesWorldSize": "the factor 2: the world size; the loss was multiplied by 2 before backward",
    "C04-MeanOfEachRank": "the mean of the ranks' own means",
    "C07-FusedLoss": "it was not reduced over the ranks",
    "C08-OwnPartAlone": "the gradient of what was gathered comes back to the rank's own part alone",
    "C12-OwnPairsAlone": "each rank has held its samples against its own alone",
    "C13-NormOverRanks": "add no squares up over the ranks",
    "C14-ClipEachMicroBatch": "clipped in pieces",
    "C15-ClipBeforeBackward": "not clipped at the step",
    "C16-ClipEachParameter": "clipped in pieces",
    "D02-NoSetEpoch": "Call set_epoch",
    "D04-SetEpochOfAnySampler": "AttributeError",
    "D07-SamplerOfOwnSeed": "a seed, an epoch or the dataset's own order differs",
    "D11-WholeStream": "every rank takes the whole of it",
    "D16-ShardOfLocalRank": "ranks 0 and 2, 1 and 3 take the same share, as their local ranks are the same",
    "D17-NeverShuffled": "the order of the dataset",
    "D18-SamplerShuffled": "the order that job.sampler yields them in",
    "D19-SamplerReplaced": "another sampler was put in its place",
    "D21-ShardBeforeTheGroup": "ranks 0 and 1 take the same share",
    "F02-WriterOfEachNode": "LOCAL_RANK 0",
    "F04-CommittedLater": "it hung",
    "F06-NameFoundByEachRank": "step-6-again.pt",
    "F07-RenamedByEachRank": "staging",
    "F11-StateOfTheWrapper": "Missing key(s)",
    "F11-PrefixNotNoticed": "no parameter was loaded",
    "F13-OneStreamForAll": "rank 1 goes on with the random states of rank 0",
    "F14-StreamOfRank0": "rank 1 goes on with the random states of rank 0",
    "F15-StreamOfTheModelGroup": "rank 0 goes on with the random states of rank 1",
    "F16-OrderOfTheFirstEpoch": "in the order of epoch 0: these are the samples of step 1",
    "F16-SkippedForAllRanks": "too much of the epoch was passed over",
    "F16-StepsForBatches": "too little of the epoch was passed over",
    "F16-EpochEndForgotten": "the evaluation that was due before this step was left out",
    "F16-NothingLeftOfTheEpoch": "what is left of that epoch, nothing, was taken for the next one",
    "F17-OneBatchAhead": "saved when 1 further batch had been fetched",
    "F17-RestoredAfterTheFirstBatch": "when the first batch had been fetched",
    "F18-MomentsDropped": "the optimizer has lost its state",
    "F18-PlateauForgotten": "Save and load the scheduler's state, too",
    "F19-LoadedOnRank0": "rank 0 has the right ones",
    "F20-FolderInPlace": "it hung",
    "F21-CacheOfEachRank": "dataset.cache",
    "G02-StreamSynchronised": "synchronise no global random state",
    "G03-MaskOfTheWorker": "Python's random stream",
    "G03-NumpyOfTheWorker": "numpy's random stream",
    "G06-SameStreamsOnAllRanks": "Python's random stream",
    "G06-WorkerOfTheSeed": "seeds of workers coincide between ranks and between epochs",
    "G07-WorkerOfRankAndSeed": "seeds of workers coincide between epochs",
    "I01-Padded": "are counted twice",
    "I02-Truncated": "are left out",
    "I03-MeanOfRecalls": "the ranks' own values are averaged",
    "I06-LastRoundCutOff": "are left out",
    "I10-OwnArea": "takes its own part of the samples for the whole",
    "I11-BestOfItsOwn": "when fit(job) returns",
    "I12-LossOfRank0": "takes its own part of the samples for the whole",
    "L01-ScheduledForEachRank": "that of step 2, on 2 ranks",
    "L05-PlateauOfOwnLoss": "Reduce the loss over the ranks first",
}
"""Words that say what is wrong with just this trainer."""

long = pytest.mark.long


OF_EACH = 2
"""Faults for each check that are tried without --long."""


def _found():
    """Each fault with each check that is to find it; by default two faults of each check, by their first one."""
    runs = Counter()
    for fault in FAULTS:
        for check in fault.checks:
            short = check == fault.checks[0] and runs[check] < OF_EACH
            runs[check] += short
            yield pytest.param(fault, check, id=f"{fault.name}-{check}", marks=() if short else long)


of_faults = pytest.mark.parametrize(("fault", "check"), list(_found()))


@of_faults
@pytest.mark.few(8)
def test_a_fault_is_found(fault: Fault, check: str, workshop: Workshop):
    """The findings are whole sentences, and of the check's own id, but where the training itself came to no end."""
    findings = workshop.judged(fault.trainer, check, fault.world_size, fault.among)
    assert findings
    for finding in findings:
        assert finding.check in (BY_CHECK[check].id, "rank-failure", "no-hang")
        assert finding.subject
        assert finding.expected
        assert finding.found
        assert finding.advice.endswith(".")
        assert set(finding.ranks) <= set(range(fault.world_size))
        assert finding.ranks
    if check == fault.checks[0] and fault.name in TOLD:
        assert TOLD[fault.name] in " ".join(f"{finding.message} {finding.advice}" for finding in findings)


def _twins():
    """All of them; by default the first twin of each check."""
    seen = set()
    for fault in FAULTS:
        for check in fault.checks:
            yield pytest.param(fault, check, id=f"{fault.name}-{check}", marks=long if check in seen else ())
            seen.add(check)


@pytest.mark.parametrize(("fault", "check"), list(_twins()))
@pytest.mark.few(3)
def test_a_twin_holds(fault: Fault, check: str, workshop: Workshop):
    """Without the mistake the same check has nothing to find."""
    assert not workshop.judged(fault.twin, check, fault.world_size, fault.among)


@pytest.mark.parametrize("check", ["gradient-oracle:clipping", pytest.param("resume-equivalence", marks=long)])
@pytest.mark.parametrize("trainer", UNUSUAL, ids=lambda trainer: trainer.__name__)
@pytest.mark.few(3)
def test_what_is_right_in_another_way_holds(trainer: type[Trainer], check: str, workshop: Workshop):
    """No check takes the plain loop's way for the only one; `nox -s twins` tries all of them."""
    assert not workshop.judged(trainer, check, 2)


def test_autocast_may_be_anywhere(workshop: Workshop):
    """It counts what the model has computed in, not where that was asked for."""
    assert not workshop.judged(AutocastWithin, "gradient-oracle:bfloat16", 2)


def _factors():
    """All of them; by default at the size of the fault, and each factor at a further one."""
    seen = set()
    for fault in FAULTS:
        if fault.factor is not None:
            for check in fault.factor.checks:
                for world_size in (2, 3, 4):
                    usual = check == fault.checks[0] and (world_size == 2 or fault.factor.name not in seen)
                    seen |= {fault.factor.name} if usual and world_size == 3 else set()
                    usual = usual and world_size < 4
                    name = f"{fault.name}-{check}-{world_size}"
                    yield pytest.param(fault, check, world_size, id=name, marks=() if usual else long)


@pytest.mark.parametrize(("fault", "check", "world_size"), list(_factors()))
@pytest.mark.few(3)
def test_the_factor_is_named(fault: Fault, check: str, world_size: int, workshop: Workshop):
    """Where the mistake is a factor, every step says which, and the finding says it in words."""
    factor = fault.factor
    assert factor is not None
    (situation,) = BY_CHECK[check].situations
    trained = workshop.runner(fault.trainer).training(situation, world_size, oracle=True)
    assert trained.comparison is not None
    value = factor.value(world_size, trained.situation.accumulation)
    assert trained.comparison.steps
    for step in trained.comparison.steps:
        assert updates.factor(trained, step) == (factor.name, pytest.approx(value))
    (finding,) = updates.judge(trained).findings
    assert f"the factor {value:.4g}: {factor.name}" in finding.cause


def test_every_row_has_a_trainer():
    """No row is forgotten, and every word of TOLD belongs to one."""
    assert {fault.row for fault in FAULTS} == {f"{letter}{number}" for letter in ROWS for number in ROWS[letter]}
    names = [fault.name for fault in FAULTS]
    assert len(set(names)) == len(names)
    assert set(TOLD) <= set(names)


def test_the_document_is_up_to_date():
    """docs/conformance-faults.md says what the trainers themselves say."""
    assert table.DOCUMENT.read_text() == table.as_markdown(), "run: python -m tests.conformance.table"


@long
@of_faults
def test_the_suite_says_so(fault: Fault, check: str, workshop: Workshop):
    """As its author would hear it, from all situations and after the adapter was tried."""
    assert workshop.result(fault.trainer, check, fault.world_size).status == "violated"
    assert workshop.result(fault.twin, check, fault.world_size).status == "held"
