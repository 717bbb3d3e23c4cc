"""What each rank had to do, and whom it waited for: sums over the whole run."""

from __future__ import annotations

from ddpcheck.report.timeline.timeline import Lane, Timeline
from ddpcheck.vocabulary.model import Struct
from ddpcheck.vocabulary.wording import count

MOST_ROWS = 256
MOST_WAITS = 10
_COMPUTING = ("kind-forward", "kind-evaluation", "kind-backward", "kind-step")


class Part(Struct, frozen=True, kw_only=True):
    """A piece of a bar."""

    kind: str
    width: str
    """Per cent of the longest rank's time."""
    title: str


class Row(Struct, frozen=True, kw_only=True):
    """One rank."""

    title: str
    steps: str
    batches: str
    samples: str
    computing: str
    waited: str
    caused: str
    parts: tuple[Part, ...]
    spoken: str


class Waited(Struct, frozen=True, kw_only=True):
    """Who waited for whom at one line."""

    who: str
    late: str
    seconds: str
    times: str
    text: str
    place: str


def balance(timeline: Timeline) -> list[Row]:
    """One row for each lane, as far as a table can be read."""
    shown = timeline.lanes[:MOST_ROWS]
    longest = max((sum(took for _, _, took in _times(lane)) for lane in shown), default=0.0)
    return [_row(lane, longest or 1.0) for lane in shown]


def _times(lane: Lane) -> list[tuple[str, str, float]]:
    """What a lane's time went into, as colours and names: each second once."""
    sums, seconds = lane.sums, lane.sums.seconds
    outside = sums.waited - sums.waited_in_backward
    times = (
        ("kind-forward", "forwards", seconds["forward"]),
        ("kind-evaluation", "forwards without gradients", seconds["evaluation"]),
        ("kind-backward", "backwards", max(0.0, seconds["backward"] - sums.waited_in_backward)),
        ("kind-step", "optimizer steps", seconds["step"]),
        ("kind-data", "waiting for data", seconds["data"]),
        ("kind-save", "saves and loads", seconds["save"] + seconds["load"]),
        ("kind-collective", "collectives", max(0.0, seconds["collective"] + seconds["wait"] - outside)),
        ("waited", "waiting for ranks that came later", sums.waited),
    )
    return [(kind, title, took) for kind, title, took in times if took > 0]


def _row(lane: Lane, longest: float) -> Row:
    sums = lane.sums
    shown = _times(lane)
    computing = sum(took for kind, _, took in shown if kind in _COMPUTING)
    return Row(
        title=lane.title,
        steps=f"{sums.steps:,}",
        batches=f"{sums.batches:,}",
        samples=f"{sums.samples:,}",
        computing=_seconds(computing),
        waited=_seconds(sums.waited),
        caused=_seconds(sums.caused),
        parts=tuple(
            Part(kind=kind, width=f"{100 * took / longest:.2f}", title=f"{title}: {_seconds(took)}")
            for kind, title, took in shown
        ),
        spoken=", ".join(f"{title} {_seconds(took)}" for _, title, took in shown) or "nothing on record",
    )


def waits(timeline: Timeline) -> list[Waited]:
    """The longest."""
    found = []
    for one in timeline.waits[:MOST_WAITS]:
        place = timeline.places[one.place] if one.place >= 0 else None
        found.append(
            Waited(
                who=timeline.lanes[one.lane].title,
                late=timeline.lanes[one.late].title,
                seconds=_seconds(one.seconds),
                times=count(one.times, "call"),
                text=one.text,
                place=f"{place.file}:{place.line}" if place is not None else "",
            )
        )
    return found


def _seconds(value: float) -> str:
    if value >= 100:
        return f"{value:,.0f} s"
    return f"{value:.2f} s" if value >= 0.1 or not value else f"{value * 1000:.1f} ms"
