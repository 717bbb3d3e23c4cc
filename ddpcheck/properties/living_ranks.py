"""The ranks of a property, seen from the engine: alive between examples, and started anew where they have ended."""

from __future__ import annotations

from collections.abc import Callable

from msgspec.structs import replace

from ddpcheck.ranks import messages
from ddpcheck.vocabulary.clock import clock
from ddpcheck.vocabulary.model import CheckRun, Leftover, Plan, RunRecord, WarningRecord
from ddpcheck.zygote.client import Launcher


class LivingRanks:
    """Runs examples in ranks, which it starts when there is one to run."""

    def __init__(self, launcher: Launcher, plan: Plan) -> None:
        self.launcher, self.plan = launcher, plan
        self.alive = False
        self.begun = clock.now()
        self.last: RunRecord | None = None
        """What happened in the last ranks that have ended."""
        self._checks: list[CheckRun] = []
        self._warnings: dict[WarningRecord, None] = {}
        self._leftovers: dict[Leftover, None] = {}

    def begin(self) -> RunRecord | None:
        """Have ranks that wait for examples; returns what happened where they have ended instead."""
        if self.alive:
            return None
        record = self.launcher.begin(self.plan)
        self.alive = record is None
        return self._kept(record) if record is not None else None

    def run(
        self, example: messages.Example, answer: Callable[[messages.Asked], messages.Given]
    ) -> messages.ExampleOver | RunRecord:
        """Run one example; where ranks have failed in it, or are lost, all have ended, and this is their record."""
        record = self.begin()
        if record is not None:
            return record
        message: messages.Message = example
        while True:
            try:
                told = self.launcher.tell(self.plan, message)
            except BaseException:  # interrupted: the launcher has seen to it that none is left
                self.alive = False
                raise
            if isinstance(told, messages.Asked):
                message = answer(told)
                continue
            if isinstance(told, RunRecord):
                self.alive = False
                # Violations of examples on the way to the smallest one are no news; that one's are.
                return self._kept(told, with_checks=example.final)
            self._checks.extend(told.checks)
            return told

    def finish(self) -> RunRecord | None:
        """Let the ranks go, with their fixtures torn down; returns what happened then, if they were alive."""
        if not self.alive:
            return None
        self.alive = False
        told = self.launcher.tell(self.plan, messages.Finish())
        assert isinstance(told, RunRecord)
        return self._kept(told)

    def abort(self) -> None:
        """End the ranks at once."""
        if self.alive:
            self.alive = False
            self.launcher.abort()

    def whole(self, record: RunRecord) -> RunRecord:
        """A record with what all ranks of this property have left, and all the time that they took."""
        return replace(
            record,
            checks=tuple(self._checks),
            warnings=tuple(self._warnings),
            leftovers=tuple(self._leftovers),
            seconds=clock.now() - self.begun,
        )

    def _kept(self, record: RunRecord, with_checks: bool = True) -> RunRecord:
        self.last = record
        if with_checks:
            self._checks.extend(record.checks)
        self._warnings.update(dict.fromkeys(record.warnings))
        self._leftovers.update(dict.fromkeys(record.leftovers))
        return record
