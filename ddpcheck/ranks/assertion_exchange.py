"""Where the ranks' evidence meets: one verdict for all, or the reason why there can be none."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from msgspec.structs import replace

from ddpcheck.checks.registry import named_finding
from ddpcheck.ranks import messages
from ddpcheck.verdict.explained_assertion import explained
from ddpcheck.vocabulary.clock import clock
from ddpcheck.vocabulary.model import CheckRun, Finding, Question, Status
from ddpcheck.vocabulary.wording import NOT_CHECKED, ranks_text

Judge = Callable[[str, Sequence[Any], Sequence[Sequence[Any]]], "tuple[Finding, ...] | Question"]
"""Called with a check id, each rank's facts, and each rank's answers, round by round."""


STUCK_PATIENCE = 1.0
"""Seconds for the other ranks to come, once one that cannot go on has: they may sit in a collective, waiting for it."""


class Exchange:
    """The assertion that the ranks of one test are in, if any.

    It is given what arrives and returns what to send; it never waits, so a
    rank that does not come can hold up nobody but those who chose to wait.
    """

    def __init__(self, world_size: int, judge: Judge) -> None:
        self.world_size = world_size
        self.judge = judge
        self.done: list[CheckRun] = []
        self._reset()

    def _reset(self) -> None:
        self.waiting: dict[int, messages.Evidence] = {}
        self._rounds: list[list[Any]] = []
        self._answers: dict[int, Any] = {}
        self._asked = False
        self._found: tuple[Finding, ...] = ()
        """What was found, while the ranks are asked for what explains it."""
        self.until: float | None = None
        """When (by the monotonic clock) it is judged without those who have not come."""

    def arrive(self, rank: int, evidence: messages.Evidence) -> None:
        self.waiting[rank] = evidence
        if evidence.stuck and self.until is None:
            self.until = clock.now() + STUCK_PATIENCE

    def answer(self, rank: int, facts: Any) -> None:
        self._answers[rank] = facts

    def step(self, gone: set[int]) -> dict[int, messages.Message]:
        """Return a message for each rank that can go on, given the ranks whose body is over."""
        absent = gone - self.waiting.keys()
        if self.until is not None and len(self.waiting) < self.world_size:
            return self._judge_who_came() if absent or clock.now() >= self.until else {}
        if not self.waiting or len(self.waiting) + len(absent) < self.world_size:
            return {}
        if absent or len({(e.check, e.title) for e in self.waiting.values()}) > 1:
            return self._close((self._asymmetry(absent),))
        if self._asked:
            if len(self._answers) < self.world_size:
                return {}
            self._rounds.append([self._answers[rank] for rank in range(self.world_size)])
            self._answers = {}
        groundless = [rank for rank, e in sorted(self.waiting.items()) if e.unjudgeable]
        if groundless and not any(e.stuck for e in self.waiting.values()):
            return self._close((self._groundless(groundless),))
        result: tuple[Finding, ...] | Question
        if self._found:
            result = explained(self._found, self._rounds[-1])
        else:
            facts = [self.waiting[rank].facts for rank in range(self.world_size)]
            result = self.judge(self.waiting[0].check, facts, self._rounds)
            if not isinstance(result, Question) and self._is_to_be_explained(result):
                self._found, result = result, Question(ask=messages.EVIDENCE)
        if isinstance(result, Question):
            self._asked = True
            return {rank: messages.Ask(question=result) for rank in self.waiting}
        return self._close(tuple(f if f.where else replace(f, where=self.waiting[0].where) for f in result))

    def _is_to_be_explained(self, found: Sequence[Finding]) -> bool:
        return any(f.severity == "error" for f in found) and all(e.explains for e in self.waiting.values())

    def _judge_who_came(self) -> dict[int, messages.Message]:
        """The verdict where a rank cannot go on: by its evidence, and that of those who came; None for the others."""
        first = next(e for _, e in sorted(self.waiting.items()) if e.stuck)
        came = {rank: e.facts for rank, e in self.waiting.items() if e.check == first.check}
        facts = [came.get(rank) for rank in range(self.world_size)]
        result = self.judge(first.check, facts, ())
        assert not isinstance(result, Question), "a judge asks nothing of ranks that cannot go on"
        return self._close(tuple(f if f.where else replace(f, where=first.where) for f in result))

    def _close(self, findings: tuple[Finding, ...]) -> dict[int, messages.Message]:
        """Give everyone who waits the same verdict, and be ready for the next assertion."""
        first = self.waiting[min(self.waiting)]
        findings = tuple(one for one in map(named_finding, findings) if one.severity != "advisory")
        worst = _worst(findings)
        self.done.append(
            CheckRun(
                # What broke is not always what was asked: a load that raises is reported as such, whatever was asked.
                check=worst.check if worst is not None else first.check,
                status=_status(worst),
                findings=findings,
                where=first.where,
            )
        )
        verdict = messages.Verdict(findings=findings, number=len(self.done), at=clock.now())
        out: dict[int, messages.Message] = dict.fromkeys(self.waiting, verdict)
        self._reset()
        return out

    def _asymmetry(self, absent: set[int]) -> Finding:
        calls: dict[str, list[int]] = {}
        for rank, evidence in sorted(self.waiting.items()):
            calls.setdefault(f"{evidence.title} ({evidence.where})", []).append(rank)
        found = [f"{ranks_text(ranks)} called {call}" for call, ranks in calls.items()]
        if absent:
            found.append(f"{ranks_text(absent)} ended the test's body without a call")
        first = self.waiting[min(self.waiting)]
        return Finding(
            check=first.check,
            rule="unequal-assertion-calls",
            ranks=tuple(sorted(self.waiting)),
            subject=first.title,
            expected="every rank to call the same assertion",
            found="; ".join(found),
            where=first.where,
            advice=(
                "Call it on every rank: outside of `if ddp.rank == 0:`, and of loops whose length differs "
                "between ranks."
            ),
        ).named(first.check)

    def _groundless(self, ranks: Sequence[int]) -> Finding:
        first = self.waiting[ranks[0]]
        return Finding(
            check=first.check,
            rule="missing-evidence",
            severity="warning",
            ranks=tuple(ranks),
            subject=first.title,
            expected=f"what {first.title} rests on to be there",
            found=first.unjudgeable,
            where=first.where,
            advice="Nothing is known of it here: `ddpcheck doctor` lists what is missing, and what rests on it.",
            links=(NOT_CHECKED,),
        ).named(first.check)


def _worst(findings: Sequence[Finding]) -> Finding | None:
    """The finding that decides: an error, or a warning, or one that says why there was nothing to judge."""
    return min(findings, key=lambda f: (f.severity != "error", NOT_CHECKED in f.links), default=None)


def _status(worst: Finding | None) -> Status:
    if worst is None:
        return "held"
    if worst.severity == "error":
        return "violated"
    return NOT_CHECKED if NOT_CHECKED in worst.links else "at-risk"
