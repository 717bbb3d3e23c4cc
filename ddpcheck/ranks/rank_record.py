"""What is known of one rank so far, while it is watched."""

from __future__ import annotations

from typing import NamedTuple

from ddpcheck.ranks import messages
from ddpcheck.ranks.captured_output import CapturedOutput
from ddpcheck.ranks.channel import Channel
from ddpcheck.ranks.process_ties import ExitWatch
from ddpcheck.vocabulary.clock import clock
from ddpcheck.vocabulary.model import EndingKind, ExampleEnd, PhaseReport, Raised, RankEnding


class StartedRank(NamedTuple):
    """A process that was started as a rank, and the supervisor's end of its channel."""

    rank: int
    watch: ExitWatch
    channel: Channel

    def discard(self) -> None:
        """End it, and let go of what is held for it."""
        self.watch.kill()
        self.watch.wait(5.0)
        self.watch.close()
        self.channel.close()


class WatchedRank:
    """What is known of one rank so far."""

    def __init__(self, started: StartedRank) -> None:
        self.rank, self.watch, self.channel = started
        self.joined = self.body_ended = self.released = self.done = self.dismissed = self.gone = False
        self.reports: list[PhaseReport] = []
        self.subtests: list[PhaseReport] = []
        self.raised: Raised | None = None
        self.kind: EndingKind | None = None
        self.at = self.gone_at = 0.0
        self.verdict: int | None = None
        self.stack = self.waiting_in = self.text = ""
        self.left_with: int | None = None
        """The code that ``pytest.exit`` was given."""
        self.reaction = False
        self.captured = CapturedOutput()
        self.resting = False
        """It waits for the next example of a property."""
        self.example: ExampleEnd | None = None
        self.noted: list[str] = []
        self._begun = False
        """The last note is of something that has not come to its end."""

    @property
    def failed(self) -> bool:
        """This rank's own word or end makes the test fail, or at least not pass plainly."""
        if self.kind in ("died", "never-started", "hung", "exit"):
            return True
        if self.example is not None and self.example.status == "failed":
            return True
        return any(r.outcome == "failed" or xfailed(r) for r in self.reports)

    @property
    def failed_as_expected(self) -> bool:
        """This rank has reported failures, and all of them were expected."""
        return any(map(xfailed, self.reports)) and all(r.outcome != "failed" for r in self.reports)

    @property
    def over(self) -> bool:
        """Nothing more will come from the body of this rank."""
        return self.body_ended or self.done or self.gone or any(r.outcome != "passed" for r in self.reports)

    @property
    def owes_report(self) -> bool:
        """This rank has raised, and is still at work on its traceback."""
        return self.raised is not None and not self.gone and all(r.outcome == "passed" for r in self.reports)

    def begin_example(self) -> None:
        self.resting, self.example, self.noted, self._begun = False, None, [], False

    def end(self, kind: EndingKind) -> None:
        if self.kind is None:
            self.kind, self.at = kind, clock.now()

    def note(self, noted: messages.Noted) -> None:
        if self._begun:
            self.noted.pop()
        self.noted.append(noted.text)
        self._begun = noted.begun

    def ending(self) -> RankEnding:
        assert self.kind is not None
        return RankEnding(
            rank=self.rank,
            kind=self.kind,
            at=self.at,
            reports=tuple(self.reports),
            subtests=tuple(self.subtests),
            body_ended=self.body_ended or self.resting,
            raised=self.raised,
            verdict=self.verdict,
            exit_code=self.watch.exit_code if self.kind == "died" else self.left_with,
            signal=self.watch.signal if self.kind == "died" else None,
            stack=self.stack,
            waiting_in=self.waiting_in,
            text=self.text,
            reaction=self.reaction,
            output=self.captured.read() if self.kind in ("died", "hung", "stopped", "never-started") else (),
            example=self.example,
            noted=tuple(self.noted),
        )


def xfailed(report: PhaseReport) -> bool:
    return report.outcome == "skipped" and "wasxfail" in report.data
