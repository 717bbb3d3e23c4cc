"""From the ends of an example in all ranks to the one that the engine is told. Plain functions over plain data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple

from ddpcheck.examples.failure_origins import line_in
from ddpcheck.vocabulary.model import CallSite, ExampleEnd, Origin, RankEnding, RunRecord, Struct
from ddpcheck.vocabulary.wording import ranks_text, signal_name

DISAGREE = "RanksDisagree"


class ExampleVerdict(Struct, frozen=True, kw_only=True):
    """How an example has ended, over all ranks."""

    kind: Literal["passed", "invalid", "stopped", "skipped", "failed", "over"]
    """``over``: not the example has failed, but the test: it could not start, or has left."""
    text: str = ""
    where: CallSite | None = None
    origin: Origin | None = None
    traceback: str = ""


class _Failure(NamedTuple):
    weight: int
    """A lost peer is felt, and perhaps told, before the peer's own failure is."""
    at: float
    rank: int
    origin: Origin
    text: str
    traceback: str


def verdict_of_ends(ends: Mapping[int, ExampleEnd], test: CallSite) -> ExampleVerdict:
    """The verdict where every rank has ended the example, and none by failing."""
    statuses = {end.status for end in ends.values()}
    if len(statuses) > 1:
        return _disagreement(ends, (), test)
    first = ends[min(ends)]
    return ExampleVerdict(kind=first.status, text=first.text, where=first.where)


def verdict_of_run(record: RunRecord, test: CallSite, known: Sequence[Origin]) -> ExampleVerdict:
    """The verdict where the ranks have come to their end with the example.

    Ranks that fail independently of each other fail in any order. So that the
    same example is the same failure every time, one that is ``known`` counts
    before one that is not.
    """
    endings = record.endings
    if any(e.kind in ("exit", "never-started") or _not_set_up(e) for e in endings):
        return ExampleVerdict(kind="over")
    failures = sorted(f for e in endings if (f := _failure(e, test)))
    if failures:
        alike = [f for f in failures if f.weight == failures[0].weight]
        chosen = min(alike, key=lambda f: known.index(f.origin) if f.origin in known else len(known))
        return ExampleVerdict(kind="failed", text=chosen.text, origin=chosen.origin, traceback=chosen.traceback)
    hung = [e for e in endings if e.kind == "hung"]
    ends = {e.rank: e.example for e in endings if e.example is not None}
    if hung and any(end.status != "passed" for end in ends.values()):
        return _disagreement(ends, [e.rank for e in hung], test)
    if hung:
        text = f"timed out after {record.plan.timeout:g} s with {ranks_text(e.rank for e in hung)} still running"
        # Not one that waits for the others where we know of it: which of those have come there is a matter of time.
        shown = next((e for e in hung if not e.waiting_in), hung[0])
        origin = Origin(module="ddpcheck", name="TimedOut", where=line_in(shown.stack) or test)
        return ExampleVerdict(kind="failed", text=text, origin=origin, traceback=shown.stack)
    if len(ends) == len(endings) and not any(r.outcome != "passed" for e in endings for r in e.reports):
        return verdict_of_ends(ends, test)
    return ExampleVerdict(kind="over")


def _not_set_up(ending: RankEnding) -> bool:
    return any(report.phase == "setup" and report.outcome != "passed" for report in ending.reports)


def _failure(ending: RankEnding, test: CallSite) -> _Failure | None:
    end = ending.example
    if end is not None and end.status == "failed":
        assert end.origin is not None
        return _Failure(int(end.reaction), end.at, ending.rank, end.origin, end.text, end.traceback)
    if ending.kind != "died":
        return None
    if ending.signal is not None:
        how, name = f"was killed by {signal_name(ending.signal)}", signal_name(ending.signal)
    else:
        how, name = f"left with exit code {ending.exit_code}", f"code {ending.exit_code}"
    when = " between two examples" if ending.body_ended else ""
    origin = Origin(module="ddpcheck", name=f"RankDied ({name})", where=line_in(ending.stack) or test)
    return _Failure(0, ending.at, ending.rank, origin, f"rank {ending.rank} {how}{when}", ending.stack)


_DOES = {
    "passed": "went on to the end",
    "invalid": "rejected the example",
    "skipped": "skipped",
    "stopped": "had no further choice",
}


def _disagreement(ends: Mapping[int, ExampleEnd], hung: Sequence[int], test: CallSite) -> ExampleVerdict:
    """Some ranks have rejected or skipped what others have not: a fault of the test, and so a failure of it."""
    groups: dict[str, list[int]] = {}
    where: CallSite | None = None
    for rank, end in sorted(ends.items()):
        place = ""
        if end.status != "passed" and end.where is not None:
            where, place = where or end.where, f" ({end.where})"
        groups.setdefault(_DOES[end.status] + place, []).append(rank)
    said = [f"{ranks_text(ranks)} {what}" for what, ranks in groups.items()]
    if hung:
        said.append(f"{ranks_text(hung)} went on, and waited until the deadline")
    text = (
        f"the ranks disagree about this example: {'; '.join(said)}. Reject or skip an example on all ranks or on none: "
        "let the condition depend on nothing that differs between ranks."
    )
    origin = Origin(module="ddpcheck", name=DISAGREE, where=where or test)
    return ExampleVerdict(kind="failed", text=text, origin=origin)
