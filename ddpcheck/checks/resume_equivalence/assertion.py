"""Does a training that was saved and loaded go on as if it had never stopped?"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import msgspec

from ddpcheck.evidence.training_state import LASTING, Kind, Resumed, Value, is_any
from ddpcheck.judging import failed_user_functions
from ddpcheck.vocabulary.model import Finding
from ddpcheck.vocabulary.wording import NOT_CHECKED, count, listing, ranks_text

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


def judge(facts: Sequence[Any], rounds: Sequence[Sequence[Any]] = ()) -> tuple[Finding, ...]:
    """Hold what each rank has come to after a load against what it came to without."""
    resumed = [None if fact is None else msgspec.convert(fact, Resumed) for fact in facts]
    raised = failed_user_functions.judge([one.failure if one is not None else None for one in resumed])
    return raised or _resumed([one for one in resumed if one is not None])


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
            rule="resumed-training-differs",
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
        rule="order-dependent-gradient-sums",
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
    return _same(saved, loaded) or (kind in LASTING and is_any(loaded, name, said))


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
