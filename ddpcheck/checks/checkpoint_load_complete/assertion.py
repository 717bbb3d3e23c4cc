"""Does what a test loads leave nothing untouched?"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import msgspec

from ddpcheck.evidence.training_state import LASTING, Loaded, is_any
from ddpcheck.judging import failed_user_functions
from ddpcheck.vocabulary.model import Finding
from ddpcheck.vocabulary.wording import count, listing, ranks_text


def judge(facts: Sequence[Any], rounds: Sequence[Sequence[Any]] = ()) -> tuple[Finding, ...]:
    """Hold what each rank has after the load against what was saved, and against what it had before."""
    loaded = [None if fact is None else msgspec.convert(fact, Loaded) for fact in facts]
    raised = failed_user_functions.judge([one.failure if one is not None else None for one in loaded])
    return raised or _complete([one for one in loaded if one is not None])


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
            if value.kind in LASTING and not value.is_empty and not is_any(after, name, said):
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
            rule="untouched-tensors" if untouched else "values-not-restored",
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
            rule="partly-loaded-tensor",
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
            rule="load-not-verifiable",
            severity="warning",
            ranks=tuple(range(len(said))),
            subject=names[0],
            expected="every parameter and buffer to be overwritten before the load, to see what is left of that",
            found=f"{listing(names, 4)} in a form that takes no values: expanded, sparse or quantized",
            advice="Whether the load writes it is not known; compare it by hand.",
        ),
    )
