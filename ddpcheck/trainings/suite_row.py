"""A row of the conformance suite: what a check asks of a trainer, by which situations, and in how many ranks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from msgspec.structs import replace

from ddpcheck.judging.world import Judged
from ddpcheck.trainings.situations import BY_NAME, SITUATIONS, LossKind, Parallelism
from ddpcheck.trainings.trained_situation import Trained
from ddpcheck.vocabulary.model import Finding
from ddpcheck.vocabulary.wording import count

ANY = "*"
"""All trainings that end of themselves."""

ORDINARY = tuple(s.name for s in SITUATIONS if s.at == "train" and not s.resumed_from and s.parallelism == "ddp")


class Row(NamedTuple):
    """One row of the suite."""

    name: str
    """A check id, and after a colon the situation, where there are several."""
    situations: tuple[str, ...]
    judge: Callable[[Sequence[Trained]], Judged]
    """Given what came of the situations, in their order."""
    least: int = 1
    """The smallest world size at which there is something to judge."""
    world_sizes: tuple[int, ...] = ()
    """The only ones at which there is; empty for all."""
    oracle: bool = False
    """It needs to know what one process would have done in the first of them."""
    also_failed: bool = False
    """It judges trainings that did not end well, too."""

    @property
    def id(self) -> str:
        """The check id alone."""
        return self.name.partition(":")[0]

    @property
    def loss(self) -> LossKind:
        """The kind of loss that its trainings have."""
        return BY_NAME[self.situations[0]].loss if self.situations[0] != ANY else "samples"

    @property
    def parallelism(self) -> Parallelism:
        """How its trainings are to be parallelised."""
        return BY_NAME[self.situations[0]].parallelism if self.situations[0] != ANY else "ddp"

    def trained_in(self, world_size: int) -> list[int]:
        """In how many ranks each of its situations is trained, to be judged in so many."""
        last = BY_NAME.get(self.situations[-1])
        if last is None or not last.in_other_ranks:
            return [world_size] * len(self.situations)
        return [last.saved_in(world_size) if name == last.resumed_from else world_size for name in self.situations]

    def fits(self, world_size: int, losses: Sequence[str], sharded: Sequence[str] = ()) -> bool:
        """Whether there is something to judge in so many ranks, for a trainer of such losses that shards so."""
        sizes = self.world_sizes
        asked = self.loss in losses and (self.parallelism == "ddp" or self.parallelism in sharded)
        return asked and world_size >= self.least and (not sizes or world_size in sizes)


def one(judge: Callable[[Trained], Judged]) -> Callable[[Sequence[Trained]], Judged]:
    """A judge of the first training alone."""
    return lambda trained: judge(trained[0])


def each(judge: Callable[[Trained], Judged]) -> Callable[[Sequence[Trained]], Judged]:
    """A judge of many trainings: what it says of the first of them stands for the others that it says it of, too."""

    def judge_all(trained: Sequence[Trained]) -> Judged:
        said = [judge(one) for one in trained]
        findings = [_and_likewise(alike) for alike in _alike(said)]
        reason = next((one.skipped_because for one in said if one.skipped_because), "")
        check = said[0].check if said else ""
        checked = sum(one.checked for one in said)
        return Judged(check=check, checked=checked, findings=tuple(findings[:3]), skipped_because=reason)

    return judge_all


def _alike(said: Sequence[Judged]) -> list[list[Finding]]:
    """The findings of many trainings, those that are broken in the same way together; one of each training."""
    found: dict[tuple[str, ...], list[Finding]] = {}
    for one in said:
        ways = {(finding.expected, finding.cause, finding.advice): finding for finding in reversed(one.findings)}
        for way, finding in ways.items():
            found.setdefault(way, []).append(finding)
    return list(found.values())


def _and_likewise(findings: Sequence[Finding]) -> Finding:
    first, *others = findings
    if not others:
        return first
    told = f"{first.found}; likewise in {count(len(others), 'other training')}"
    return replace(first, found=told, count=sum(finding.count for finding in findings))


def watched(check: str) -> Callable[[Sequence[Trained]], Judged]:
    """What the judges of a script's run say."""

    def judge(trained: Trained) -> Judged:
        return trained.watched.get(check, Judged(check=check, checked=0))

    return each(judge)
