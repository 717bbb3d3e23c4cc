"""Tensors and settings that several holders must hold alike, with what each of them held at every look."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Literal, NamedTuple

from ddpcheck.evidence import ABSENT, UNSEEN
from ddpcheck.judging import step_alignment
from ddpcheck.vocabulary.model import CallSite, Severity

Values = bytes | tuple[Any, ...]
"""What one holder holds: digests side by side, or one value for each place. UNSEEN and None were not looked at."""


class Ground(NamedTuple):
    """Why holders must agree."""

    kind: str
    """``wrapper``, ``declared``, ``reduced``, ``owned``, ``dealt``, ``evaluated``, …: rows choose their words by it."""
    severity: Severity = "error"
    """The most that may be said where they do not."""
    whom: str = "all ranks"
    """The holders, in a message."""
    along: str = ""
    """The dimensions of the mesh along which they are copies, as a clause."""
    is_rounded: bool = False
    """Each holder computes its copy for itself, so that the last bits may differ."""
    usual: Literal["most", "first", "none"] = "most"
    """Whose value is right where they differ: that of most holders, or of the first one; or any may be wrong."""
    least: int = 1
    """The number of looks at which they have to differ before it counts."""
    is_lasting: bool = False
    """It counts only if they differ at every look."""


class Look(NamedTuple):
    """What the holders held at one moment."""

    number: int
    """The step, or how many looks there were before."""
    values: tuple[Values, ...]
    """Holder by holder."""
    line: Callable[[int], CallSite | None]
    """By the place of a holder, the line that was running there."""
    window: Any = None
    """The :class:`~ddpcheck.facts.windows.Window` of a step."""
    counts: bool = True
    """Equal values prove something: they are finite, as far as is known."""

    def at(self, place: int) -> list[Any]:
        """What each holder held at one place."""
        return [at(one, place) for one in self.values]


class Holding(NamedTuple):
    """Places that several holders must hold alike, as they were looked at in one moment of a training."""

    moment: str
    """``start``, ``gradients``, ``parameters``, ``state``, ``rates``, ``buffers``, …"""
    ranks: tuple[int, ...]
    """Of the holders: one rank may be two of them, under two names."""
    names: Sequence[str]
    """By place."""
    places: Sequence[int]
    """Those that must be equal."""
    ground: Ground
    looks: Sequence[Look]
    empty: Callable[[int], frozenset[Any]] = lambda _: frozenset({b"", ABSENT, UNSEEN, None})
    """By place, the values that stand for nothing to compare, such as zeros.

    With None among them, all holders must have been looked at; without it, several.
    """
    idle: frozenset[int] = frozenset()
    """Places at which equal values prove nothing, as they stay what they were."""
    cause: str = ""
    """Why they would differ, where that does not depend on the look."""
    words: Mapping[str, str] = {}
    """What messages say of this holding in particular."""
    links: tuple[str, ...] = ()
    """What findings about it are linked by."""
    has_steps: bool = True
    """Its looks are numbered by steps."""
    optimizer: int = -1
    """The number of the optimizer whose windows its looks are; -1 where they are moments of their own."""
    proof: tuple[tuple[int, CallSite], ...] = ()


def name_within(name: str) -> str:
    """A name within the model itself, whatever holds it (a wrapper, an average)."""
    while name.startswith("module."):
        name = name.removeprefix("module.")
    return name


def at(values: Values, place: int) -> Any:
    """What a holder holds at one place; empty beyond the last one."""
    if isinstance(values, bytes):
        return step_alignment.at(values, place)
    return values[place] if place < len(values) else None


def differing(values: Sequence[Any], places: Collection[int]) -> list[int]:
    """Of these places, those at which holders hold different values.

    A place that some holder has not looked at is not among them; of settings, a
    holder that was not asked is left out.
    """
    if all(one == values[0] for one in values):
        return []
    if isinstance(values[0], bytes):
        wanted = set(places)
        return [place for place in step_alignment.differing(values) if place in wanted]
    return [place for place in places if len({at(one, place) for one in values} - {None}) > 1]


def minority(ground: Ground, values: Sequence[Values], places: Sequence[int]) -> list[int]:
    """The holders that do not hold what is usual there; of equally common values, that of the first holder is.

    A holder that was asked for none of these settings holds no opinion.
    """
    if ground.usual == "none":
        return list(range(len(values)))
    opinions: dict[tuple[Any, ...], list[int]] = {}
    for holder, held in enumerate(values):
        opinion = tuple(at(held, place) for place in places)
        if any(value is not None for value in opinion):
            opinions.setdefault(opinion, []).append(holder)
    usual = max(opinions.values(), key=lambda who: (0 in who if ground.usual == "first" else len(who), -who[0]))
    return [holder for holders in opinions.values() if holders is not usual for holder in holders]
