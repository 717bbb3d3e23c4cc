"""Is a training that was loaded the one that was saved, and does it go on as if it had never stopped?

Judges of checkpoint-load-complete and resume-equivalence, as assertions.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import msgspec

from ddpcheck.checks.catalogue import NOT_CHECKED
from ddpcheck.evidence.training_state import Failure, Holdings, Kind, Value
from ddpcheck.judging import failed_user_functions
from ddpcheck.vocabulary.model import Finding, Struct
from ddpcheck.vocabulary.wording import count, listing, ranks_text

LASTING = ("parameter", "buffer")
"""What a module's state_dict holds."""

ADVICE: dict[str, str] = {
    "batches": "Save how many batches of the epoch are done, with the epoch; after a load, set_epoch and skip these.",
    "random": "Save each rank's own random states (dist.all_gather_object), and set them on that rank, last of all, "
    "after everything that draws from them.",
    "optimizer": "Save optimizer.state_dict() and load it, into the optimizer of the model's own parameters.",
    "state": "Save the state_dict() of every scheduler and scaler, and load it.",
    "sampler": "Call sampler.set_epoch() with the epoch that the checkpoint was saved in.",
    "parameter": "Save model.module.state_dict() and load it with strict=True.",
    "buffer": "Save model.module.state_dict(), which has the buffers, and load it with strict=True.",
    "buffer that is not saved": "Register the buffer as persistent, or work it out anew from what is saved.",
    "tensor": "Save the tensor, and put it back at a load.",
    "counter": "Save the number, and put it back at a load; or name it in ignore=, if training does not depend on it.",
    "unseen": "Look for state that build() does not return, and have it returned and saved: that of a communication "
    "hook, of a library, in a global.",
}
"""By kind of what was not restored; in the order in which one explains the next."""


class Loaded(Struct, frozen=True, kw_only=True):
    """What one rank held when it saved, before it loaded, and afterwards."""

    saved: Holdings = msgspec.field(default_factory=dict)
    """Empty where that is not known: then ``left`` says what is missing."""
    before: Holdings = msgspec.field(default_factory=dict)
    after: Holdings = msgspec.field(default_factory=dict)
    left: dict[str, tuple[int, int]] = msgspec.field(default_factory=dict)
    """Tensors of which the load has left elements as they were: how many, of how many."""
    not_looked_at: tuple[str, ...] = ()
    """Tensors that could not be overwritten before, so that this is not known of them."""
    failure: Failure | None = None
    how: str = ""
    """Into what it was loaded, where that is not what was saved: ``saved from …, loaded into …``."""


class Resumed(Struct, frozen=True, kw_only=True):
    """What one rank has come to without stopping, and after a save and a load."""

    steps: int
    saved: Holdings = msgspec.field(default_factory=dict)
    loaded: Holdings = msgspec.field(default_factory=dict)
    went_on: Holdings = msgspec.field(default_factory=dict)
    resumed: Holdings = msgspec.field(default_factory=dict)
    batches_went_on: tuple[str, ...] = ()
    """A digest of what the modules were given, for each step."""
    batches_resumed: tuple[str, ...] = ()
    idle: frozenset[str] = frozenset()
    """Streams and counters that no step has moved: they are not compared."""
    ignored: frozenset[str] = frozenset()
    in_order: bool = True
    """Sums of gradients depend on nothing but the gradients; else, in both, on how DDP has laid out its buckets."""
    failure: Failure | None = None


def judge(check: str, facts: Sequence[Any], rounds: Sequence[Sequence[Any]] = ()) -> tuple[Finding, ...]:
    """The findings of one of these checks."""
    if check == "resume-equivalence":
        resumed = [None if fact is None else msgspec.convert(fact, Resumed) for fact in facts]
        raised = failed_user_functions.judge([one.failure if one is not None else None for one in resumed])
        return raised or _resumed([one for one in resumed if one is not None])
    loaded = [None if fact is None else msgspec.convert(fact, Loaded) for fact in facts]
    raised = failed_user_functions.judge([one.failure if one is not None else None for one in loaded])
    return raised or _complete([one for one in loaded if one is not None])


# --- a load leaves nothing silently untouched


def _complete(said: Sequence[Loaded]) -> tuple[Finding, ...]:
    untouched: dict[str, list[int]] = defaultdict(list)
    other: dict[str, list[int]] = defaultdict(list)
    for rank, one in enumerate(said):
        for name, (left, of) in one.left.items():
            if left == of:
                untouched[name].append(rank)
        for name, value in one.saved.items():
            after = one.after.get(name)
            # A buffer may be another on each rank, and the checkpoint has that of one: DDP sends rank 0's to all.
            if value.kind in LASTING and not value.is_empty and not _is_any(after, name, said):
                same = after is not None and after.equals(one.before.get(name))
                (untouched if same or after is None else other)[name].append(rank)
    if not untouched and not other:
        return _in_part(said)
    found = untouched or other
    name = next(iter(found))
    total = sum(1 for value in (said[0].saved or said[0].after).values() if value.kind in LASTING)
    ranks = sorted({rank for ranks in found.values() for rank in ranks})
    some = len(ranks) < len(said)
    first = said[ranks[0]]
    what = "untouched by the load" if untouched else "other than saved after the load"
    held, wanted = first.after.get(name), first.saved.get(name)
    shown = " is not there" if held is None else f" is {held.shown}"
    if held is not None and wanted is not None:
        shown += f", and {wanted.shown} was saved"
    if not untouched and some:
        cause = f"{ranks_text(ranks)} loaded something else than the others, or not at all"
    elif untouched and len(untouched) == total:
        cause = "nothing was loaded: a load that goes on where it finds no file, or no name that fits"
    elif untouched:
        cause = (
            "the names in the checkpoint do not fit all of the module's (strict=False says so in its return value only)"
        )
    else:
        cause = ""
    return (
        Finding(
            check="checkpoint-load-complete",
            severity="error",
            ranks=tuple(ranks),
            subject=name,
            expected="a load to leave every parameter and buffer as it was saved"
            + (f" ({first.how})" if first.how else ""),
            found=f"{len(found)} of {total} {what} on {ranks_text(ranks)} ({listing(found, 4)}); {name} on rank "
            f"{ranks[0]}{shown}",
            cause=cause,
            advice="Save model.module.state_dict(), load it into the module inside, with strict=True, on all ranks.",
            count=len(found),
        ),
    )


def _in_part(said: Sequence[Loaded]) -> tuple[Finding, ...]:
    """A tensor of which the load has written some elements, and not all."""
    ranks = [rank for rank, one in enumerate(said) if one.left]
    if not ranks:
        return _not_looked_at(said)
    found = said[ranks[0]].left
    name, (left, of) = next(iter(found.items()))
    return (
        Finding(
            check="checkpoint-load-complete",
            severity="error",
            ranks=tuple(ranks),
            subject=name,
            expected="a load to write every element of every parameter and buffer",
            found=f"{left} of {count(of, 'element')} of {name} untouched by the load on rank {ranks[0]}"
            + (f", and so in {count(len(found) - 1, 'other tensor')}" if len(found) > 1 else ""),
            cause="what was saved is smaller than what it was loaded into",
            advice="Load it into a module of the size that it was saved from; set what is new in it on purpose.",
            count=len(found),
        ),
    )


def _not_looked_at(said: Sequence[Loaded]) -> tuple[Finding, ...]:
    """A warning where tensors could not be overwritten before the load."""
    names = said[0].not_looked_at if said else ()
    if not names:
        return ()
    return (
        Finding(
            check="checkpoint-load-complete",
            severity="warning",
            ranks=tuple(range(len(said))),
            subject=names[0],
            expected="every parameter and buffer to be overwritten before the load, to see what is left of that",
            found=f"{listing(names, 4)} in a form that takes no values: expanded, sparse or quantized",
            advice="Whether the load writes it is not known; compare it by hand.",
        ),
    )


def _is_any(after: Value | None, name: str, said: Sequence[Loaded | Resumed]) -> bool:
    """Whether it is what some rank has saved."""
    return after is not None and any(after.equals(one.saved.get(name)) for one in said)


# --- going on equals never having stopped


class _Difference(NamedTuple):
    """What is another after the resume, on some ranks."""

    name: str
    kind: Kind
    ranks: list[int]
    from_the_load_on: bool
    """It was another right after the load: nobody has restored it."""


def _resumed(said: Sequence[Resumed]) -> tuple[Finding, ...]:
    differences = list(_differences(said))
    batches = {rank: step for rank, one in enumerate(said) if (step := _other_batch(one)) is not None}
    if not differences and not batches:
        return ()
    if not batches and not all(one.in_order for one in said) and not any(d.from_the_load_on for d in differences):
        return (_not_in_order(said, differences),)
    lost = sorted((d for d in differences if d.from_the_load_on), key=lambda d: list(ADVICE).index(d.kind))
    final = sorted(differences, key=lambda d: (d.kind not in LASTING, not d.from_the_load_on))
    ranks = sorted({rank for d in differences for rank in d.ranks} | set(batches))
    subject, kind, cause = _cause(said, differences, lost, batches)
    parts = []
    if batches:
        first = min(batches.values())
        parts.append(f"another batch from step {first} after the load on, on {ranks_text(batches)}")
    if final:
        shown = final[0]
        one = said[shown.ranks[0]]
        parts.append(
            f"{count(len(differences), 'thing')} different after {count(one.steps, 'more step')}, such as {shown.name} "
            f"on {ranks_text(shown.ranks)} ({_shown(one.went_on.get(shown.name))} without stopping, "
            f"{_shown(one.resumed.get(shown.name))} resumed)"
        )
    return (
        Finding(
            check="resume-equivalence",
            severity="error",
            ranks=tuple(ranks),
            subject=subject,
            expected="the training that was saved and loaded to go on, to the bit, as the one that never stopped",
            found="; ".join(parts),
            cause=cause,
            advice=ADVICE[kind],
            count=max(1, len(differences)),
        ),
    )


def _not_in_order(said: Sequence[Resumed], differences: Sequence[_Difference]) -> Finding:
    return Finding(
        check="resume-equivalence",
        severity="warning",
        ranks=tuple(rank for rank, one in enumerate(said) if not one.in_order),
        subject=differences[0].name,
        expected="sums of gradients that do not depend on how DDP has laid out its buckets",
        found=f"{count(len(differences), 'thing')} different after {count(said[0].steps, 'more step')}, though the "
        "load has restored all; the training's own communication hook adds up, and a new wrapper's buckets are others",
        cause="DDP lays its buckets out anew after its first backward; with three ranks or more a sum's last bits "
        "depend on that",
        advice="Try the resume without the hook, or on two ranks.",
        links=(NOT_CHECKED,),
    )


def _differences(said: Sequence[Resumed]) -> Iterator[_Difference]:
    names: dict[str, Value] = {}
    for one in said:
        for name, value in {**one.resumed, **one.went_on}.items():
            if not any(name == i or name.startswith(f"{i}.") for i in one.ignored):
                names.setdefault(name, value)
    for name, value in names.items():
        ranks = [
            rank
            for rank, one in enumerate(said)
            if name not in one.idle and not _same(one.went_on.get(name), one.resumed.get(name))
        ]
        if ranks:
            lost = any(not _is_restored(said, r, name, value.kind) for r in ranks)
            yield _Difference(name, value.kind, ranks, lost)


def _is_restored(said: Sequence[Resumed], rank: int, name: str, kind: Kind) -> bool:
    saved, loaded = said[rank].saved.get(name), said[rank].loaded.get(name)
    return _same(saved, loaded) or (kind in LASTING and _is_any(loaded, name, said))


def _same(one: Value | None, other: Value | None) -> bool:
    return one is other or (one is not None and one.equals(other))


def _other_batch(one: Resumed) -> int | None:
    """The first step after the load that was given another batch."""
    pairs = zip(one.batches_went_on, one.batches_resumed, strict=False)
    found = next((step for step, (went_on, resumed) in enumerate(pairs, 1) if went_on != resumed), None)
    if found is None and len(one.batches_went_on) != len(one.batches_resumed):
        return min(len(one.batches_went_on), len(one.batches_resumed)) + 1
    return found


def _cause(
    said: Sequence[Resumed], differences: Sequence[_Difference], lost: Sequence[_Difference], batches: dict[int, int]
) -> tuple[str, str, str]:
    """What it is about, its kind, and the cause: what the load has not restored comes before what follows from it."""
    streams = [d for d in lost if d.kind == "random"]
    sampler = [d for d in lost if d.kind == "sampler"]
    if streams and _is_one_for_all(said, streams[0]):
        cause = (
            f"{streams[0].name} is the same on all ranks after the load: one rank's state was restored on every rank"
        )
        return streams[0].name, "random", cause
    if batches and sampler:
        return sampler[0].name, "sampler", f"{sampler[0].name} is not restored by the load"
    others = [d for d in lost if d.kind != "random"]
    counters = [d for d in others if d.kind == "counter"]
    for found in (counters if batches else [], others, streams):
        if found:
            same = [d.name for d in found if d.kind == found[0].kind]
            kind = "batches" if batches and found is counters else found[0].kind
            return found[0].name, kind, f"not restored by the load: {listing(same, 4)}"
    if batches:
        return "the batches", "batches", "the place in the epoch is not restored by the load"
    worst = min(differences, key=lambda d: list(ADVICE).index(d.kind))
    return (
        worst.name,
        "unseen",
        "all that was looked at was restored by the load: something else has to be saved, too",
    )


def _is_one_for_all(said: Sequence[Resumed], stream: _Difference) -> bool:
    saved = [one.saved.get(stream.name) for one in said]
    loaded = [one.loaded.get(stream.name) for one in said]
    return (
        len(said) > 1
        and all(_same(loaded[0], v) for v in loaded[1:])
        and any(not _same(saved[0], v) for v in saved[1:])
    )


def _shown(value: Value | None) -> str:
    return "not there" if value is None else value.shown or value.digest[:12]
