"""State that was loaded into modules, beside what was saved of the files that it came from."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from ddpcheck import evidence as ev
from ddpcheck.checks.checkpoint_reshard.compared import RULES, Answer, Saved, by_name, compared, is_cut, saved_as
from ddpcheck.judging.saved_state import Piece, State, same_turn, saved_at, sources
from ddpcheck.judging.world import World
from ddpcheck.vocabulary.model import Finding
from ddpcheck.vocabulary.wording import count, listing


def judge(world: World) -> tuple[set[Saved], list[Finding]]:
    """Compare what each module holds after a load with what was saved under these names."""
    names, findings = set[Saved](), []
    for group in same_turn(world):
        record = group[0].record
        if not isinstance(record, ev.StateRead) or record.how != "module":
            continue
        wrong: dict[Answer, list[tuple[str, list[Piece]]]] = defaultdict(list)
        for name, saved, held in _pairs(world, group):
            answer = compared(saved, held)
            if answer == "values" and not is_cut(saved):
                answer = ""  # the program may have made other values of what it has loaded
            if answer == "part" and all(one.rank is held[0].rank for one in saved):
                answer = ""  # its own part, in a module that may have been made for it
            names |= {saved_as(saved)} if answer else set()
            if answer in ("order", "part", "values"):
                wrong[answer].append((name, held))
        given = _given(world, group)
        findings += [_finding(given, group, answer, each) for answer, each in wrong.items()]
    return names, findings


def _given(world: World, group: list[State]) -> list[State]:
    """What was saved of the files that these ranks have loaded: of each rank that saved one, its last save of it."""
    found: dict[tuple[object, ...], State] = {}
    for read in group:
        for path, at in sources(world, read).items():
            for state in saved_at(world, path, at):
                found[state.rank, state.record.path] = state
    return list(found.values())


def _pairs(world: World, group: list[State]) -> Iterator[tuple[str, list[Piece], list[Piece]]]:
    """By the names of a module: the parts that were saved, and those that are held.

    What is cut is put together over all ranks. What is whole comes from what its own rank has loaded: stages
    of a model may have one name for different parameters.
    """
    for name, before, held in _named(_given(world, group), group):
        if is_cut(held):
            yield name, before, held
    for state in group:
        for name, before, held in _named(_given(world, [state]), [state]):
            if not is_cut(held) and (is_cut(before) or len(before) == 1):
                yield name, before, held


def _named(given: list[State], group: list[State]) -> Iterator[tuple[str, list[Piece], list[Piece]]]:
    """By the names of a module: all that was saved, and all that is held."""
    if len({state.rank for state in given}) < len(given):
        return  # several saves of one rank: what was made of them is the program's own
    first = {piece.entry.name for piece in group[0].pieces if piece.entry.role == "parameter"}
    record = group[0].record
    if not first or not isinstance(record, ev.StateRead) or record.given < len(first):
        return
    prefixes = {_prefix(state, first) for state in given} - {None}
    if len(prefixes) != 1:
        return
    prefix = prefixes.pop()
    saved = by_name([piece for state in given for piece in state.pieces])
    held = by_name([piece for state in group for piece in state.pieces])
    for name in sorted(first):
        yield name, saved.get(f"{prefix}{name}", []), held.get(name, [])


def _prefix(state: State, names: set[str]) -> str | None:
    """What stands before a module's names in a state dict; None where there is nothing, or more than one."""
    there = {piece.entry.name for piece in state.pieces}
    one = min(names)
    found = [name[: -len(one)] for name in there if name == one or name.endswith("." + one)]
    fitting = [prefix for prefix in found if all(prefix + name in there for name in names)]
    return fitting[0] if len(fitting) == 1 else None


def _finding(given: list[State], group: list[State], answer: Answer, each: list[tuple[str, list[Piece]]]) -> Finding:
    names = list(dict.fromkeys(name for name, _ in each))
    words = {
        "order": "the same elements as were saved in another order",
        "part": "one rank's part in the place of the whole",
        "values": "other values than were saved",
    }
    return Finding(
        rule=RULES[answer],
        severity="warning" if answer == "values" else "error",
        ranks=tuple(sorted({piece.rank.rank for _, held in each for piece in held})),
        subject=names[0],
        expected="what is loaded to be, by name, what all ranks together have saved",
        found=f"{words[answer]} in {count(len(names), 'parameter')}: {listing(names)}",
        cause="the parts are put together in another order than they were cut in"
        if answer == "order"
        else "a part was taken for a copy of the whole"
        if answer == "part"
        else "",
        advice="Put parts together by their place in the whole (global shape and offset), in the order of the mesh's "
        "dimensions; torch.distributed.checkpoint does so for DTensors.",
        where=group[0].where,
        proof=given[0].rank.proof(given[0].record.site),
        links=("loaded state",),
    )
