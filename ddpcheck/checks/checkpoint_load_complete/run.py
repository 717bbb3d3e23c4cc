"""Does a load leave nothing silently untouched?"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator

from ddpcheck import evidence as ev
from ddpcheck.checks.checkpoint_load_complete import made_anew
from ddpcheck.checks.rows import Words
from ddpcheck.checks.state_rows import PartedRow, read_parted
from ddpcheck.facts import lost_reads, module_loads, optimizer_loads
from ddpcheck.facts.module_loads import PREFIXES, ModuleLoad
from ddpcheck.judging import step_alignment
from ddpcheck.judging.file_history import LOADS, MOST_LOADS, SAVES, Files, Touch, files_of, next_load, shown
from ddpcheck.judging.file_races import races_of
from ddpcheck.judging.values_by_key import by_key
from ddpcheck.judging.world import Judged, Rank, World
from ddpcheck.relations.identity import parted
from ddpcheck.vocabulary.model import CallSite, Finding
from ddpcheck.vocabulary.wording import count, listing, ranks_text

_PARTED = PartedRow(
    rule="moments-of-other-weights",
    expected="parameters whose moments were loaded to be what was loaded with these",
    found="nothing of what the load has left in {parameters} when the first step begins: {names}; their moments are "
    "what was loaded",
    words=Words(
        "they were initialised, or written to, after the load",
        "Load last; or begin the moments of these parameters anew as well.",
    ),
    severity="warning",
)


def judge(world: World) -> Judged:
    """The verdict on what was loaded: into everything, from everything, and on every rank.

    That ranks load different things is no wonder where they ask for a file,
    or read it, while it is being written.
    """
    loads = module_loads.of(world)
    partial = [one for one in loads if one.is_partial]
    findings = [
        *_refused(world),
        *_untouched(loads),
        *(() if _loads_may_race(world) else _on_some_ranks(world)),
        *_left_in_the_file(files_of(world)),
        *made_anew.judge(world),
        *_lost(world, {one.where for one in loads if one.fit}),
        *_outdated(loads),
        *read_parted([one for group in optimizer_loads.of(world) for one in parted(group)], _PARTED),
    ]
    of_findings = sum(one.count for one in findings)
    checked = of_findings if partial else max(len(loads), of_findings)
    because = _not_written(partial[0]) if partial else "" if loads else "ddpcheck saw no load_state_dict of a module"
    return Judged(checked=checked, of=len(loads), findings=tuple(findings), skipped_because=because)


def _not_written(one: ModuleLoad) -> str:
    """Why a load that wrote a part of a module shows nothing of the rest."""
    load, lacking = one.record, one.lacking or one.record.itself
    what = f"{len(lacking)} of {count(load.total, 'parameter or buffer', 'parameters and buffers')}"
    names = listing(lacking, 3)
    if one.lacking:
        return (
            f"a load with strict=False was not given {what} of a {load.kind} ({names}); "
            "ddpcheck did not see whether they were to stay as they were"
        )
    return (
        f"a load gave {what} of a {load.kind} their own memory ({names}), which writes nothing; "
        "ddpcheck did not see where these values came from"
    )


def _loads_may_race(world: World) -> bool:
    """Whether a file that some rank loads is asked for, or read, while it may be being written."""
    loaded = {path for path, reads in files_of(world).reads.items() if any(t.record.how in LOADS for t in reads)}
    return any(race.read.path in loaded for race in races_of(world).written)


def _refused(world: World) -> Iterator[Finding]:
    """load_state_dict has raised, and nothing has caught it."""
    raised = [
        (rank, r)
        for rank, r in world.of(ev.Raised)
        if "Error(s) in loading state_dict" in r.message and not r.lost_peer
    ]
    if raised:
        rank, first = raised[0]
        where = rank.where(first.site)
        fitting = next((p for p in PREFIXES if f'"{p}' in first.message), None)
        yield Finding(
            rule="state-dict-mismatch",
            ranks=tuple(r.rank for r, _ in raised),
            subject=first.message.partition(":")[0].partition("for ")[2] or "load_state_dict",
            expected="the keys of a checkpoint to fit the module that they are loaded into",
            found=" ".join(first.message.split())[:300].rstrip("."),
            cause=_prefix_cause(fitting) if fitting else "",
            advice=_prefix_advice(fitting) if fitting else "Build the module as it was when its state was saved.",
            where=where,
            links=("stop",),
            proof=tuple(line for r, one in raised[1:] for line in r.proof(one.site, but=where)),
        )


def _prefix_cause(prefix: str) -> str:
    whose = "DistributedDataParallel" if prefix == "module." else "torch.compile"
    return f"the keys on one side begin with '{prefix}', which {whose} puts there, and those on the other side do not"


def _prefix_advice(prefix: str) -> str:
    inside = "model.module" if prefix == "module." else "model._orig_mod"
    return f"Save and load the state of the module inside: {inside}.state_dict()."


def _untouched(loads: Iterable[ModuleLoad]) -> Iterator[Finding]:
    for where, found in by_key((one.where, one) for one in loads if one.fit).items():
        one, record, prefix = found[0], found[0].record, found[0].prefix
        is_silent = record.thrown_away or one.fit != "prefix"
        certain = record.thrown_away and one.fit != "shape"
        yield Finding(
            rule="unmatched-keys",
            severity="error" if certain else "warning",
            ranks=tuple(sorted({each.rank.rank for each in found})),
            subject=record.kind,
            expected="load_state_dict to find the module's parameters in the checkpoint",
            found=f"{len(one.lacking)} of {count(record.total, 'key')} missing ({listing(one.lacking, 3)}) and "
            f"{len(one.spare)} that belong nowhere ({listing(one.spare, 3)}); with strict=False "
            + ("no error reports them" if is_silent else "only its return value names them"),
            cause=_prefix_cause(prefix)
            if prefix
            else "the names in the checkpoint are not those of the module"
            + (", and their shapes are the same" if one.fit == "shape" else ""),
            advice=_prefix_advice(prefix)
            if prefix
            else "Rename the keys, and load with strict=True where all have to fit.",
            where=where,
            count=len(found),
            links=() if record.wrapper is None else (f"wrapper {record.wrapper}",),
        )


def _lost(world: World, unmatched: Collection[CallSite | None]) -> Iterator[Finding]:
    """What was read for a model that has nothing of it when it is called: a training from scratch may be meant."""
    lost = [one for one in lost_reads.of(world) if one.read.where not in unmatched]
    for its in by_key((str(one.read.where), one) for one in lost).values():
        one = its[0]
        called = one.rank.where(one.model.site)
        yield Finding(
            rule="reinitialised-after-load",
            severity="warning",
            ranks=tuple(sorted({lost.rank.rank for lost in its})),
            subject=f"{one.model.kind}.{one.names[0]}",
            expected="a model to train on what was loaded for it",
            found=f"nothing of what was loaded under the names of {count(len(one.names), 'matrix', 'matrices')} in the "
            f"{one.model.kind} that is trained, nor in another model that is called ({listing(one.names, 3)}; a share "
            f"of {one.left.share:.2f}, give or take {one.left.error:.2f})",
            cause="it was drawn anew, or built anew, after the load; or the load went into another object",
            advice="Build and draw first, and load last, into the very model that is trained. Where a training from "
            "scratch is meant, accept it.",
            where=one.read.where,
            count=len(its),
            proof=((one.rank.rank, called),) if called is not None else (),
        )


def _outdated(loads: Iterable[ModuleLoad]) -> Iterator[Finding]:
    """State that was taken from a module without a copy, before some steps, and is to be put back."""
    outdated = (one for one in loads if one.record.outdated and not one.is_filled)
    for where, found in by_key((one.where, one) for one in outdated).items():
        record = found[0].record
        yield Finding(
            rule="state-kept-without-copy",
            severity="warning",
            ranks=tuple(sorted({one.rank.rank for one in found})),
            subject=record.kind,
            expected="a load to put back what was taken before",
            found=f"{count(len(record.itself), 'tensor')} given the memory that they are in "
            f"({listing(record.itself, 3)}): steps were made since that state was taken, and it stays as it is",
            cause="state_dict() gives the tensors themselves, and no copy",
            advice="Take a copy: copy.deepcopy(model.state_dict()).",
            where=where,
            count=len(found),
        )


# --- all ranks alike


def _on_some_ranks(world: World) -> Iterator[Finding]:
    """State that came into a wrapped module on some ranks only, or not the same on all, and training went on."""
    if not world.complete or len(world) < 2 or any(rank.process.incomplete for rank in world):
        return
    for number, numbers in _loaded_into(world):
        mine = {
            rank: [
                s for s in rank.of(ev.StateLoaded) if s.owner == "module" and s.wrapped and s.wrapper == numbers[rank]
            ]
            for rank in numbers
        }
        for place in range(max(map(len, mine.values()))):
            each = {rank: found[place] for rank, found in mine.items() if len(found) > place}
            everywhere = len(each) == len(numbers)
            if everywhere and len({s.digest for s in each.values()}) == 1:
                continue
            if any(_trains_on(rank, s.n, everywhere) and not _is_equal(numbers, rank, s.n) for rank, s in each.items()):
                yield _unequal(number, each, everywhere)
                return


def _loaded_into(world: World) -> Iterator[tuple[int | None, dict[Rank, int | None]]]:
    """Each wrapper and its number on the ranks of its group; and what was in no wrapper yet, on all."""
    yield None, dict.fromkeys(world)
    for replicas in step_alignment.wrappers(world):
        yield replicas.number, {rank: replicas.of(rank) for rank in replicas.ranks}


def _trains_on(rank: Rank, n: int, everywhere: bool) -> bool:
    """An optimizer steps after it, and no call before that may have brought the ranks together.

    An average does so, or an object, only where each rank has loaded something.
    """
    step = min((s.n for s in rank.of(ev.Step) if s.n > n), default=None)
    if step is None:
        return False
    sent = ("broadcast", "ddp-construct", "scatter", *(("broadcast_object_list", "all_reduce") if everywhere else ()))
    return not any(n < c.n < step and c.op in sent for c in rank.of(ev.Call))


def _is_equal(ranks: Iterable[Rank], loading: Rank, n: int) -> bool:
    """Whether all ranks were seen to hold the same parameters after the next step, however they came to that."""
    step = next((s for s in loading.of(ev.Step) if s.n > n), None)
    if step is None or not step_alignment.are_seen([step.parameters]):
        return False
    same = [
        any(
            (s.optimizer, s.number, s.parameters) == (step.optimizer, step.number, step.parameters)
            for s in rank.of(ev.Step)
        )
        for rank in ranks
    ]
    return all(same)


def _unequal(wrapper: int | None, each: dict[Rank, ev.StateLoaded], everywhere: bool) -> Finding:
    first, *others = each
    ranks = tuple(rank.rank for rank in each)
    if everywhere:
        found = "each rank loading another state: " + listing(
            f"rank {rank.rank} from {path or 'elsewhere'}"
            for rank, path in ((r, _loaded_from(r, s.n)) for r, s in each.items())
        )
        advice = "Let all ranks load one file: decide for its path on rank 0, and broadcast it."
    else:
        found = f"only {ranks_text(ranks)} loading, after the wrap: DDP does not send it to the others"
        advice = "Load on every rank, or on rank 0 before the module is wrapped: the constructor sends it to all."
    where = first.where(each[first].site)
    return Finding(
        rule="different-loaded-states" if everywhere else "load-on-some-ranks",
        ranks=ranks,
        subject=f"wrapper {wrapper}" if wrapper is not None else "the model",
        expected="all ranks to go on from the same state",
        found=found,
        advice=advice,
        where=where,
        links=(f"wrapper {wrapper}",) if wrapper is not None else (),
        proof=tuple(line for rank in others for line in rank.proof(each[rank].site, but=where)),
    )


def _loaded_from(rank: Rank, n: int) -> str:
    found = [r.path for r in rank.of(ev.File) if r.how in LOADS and r.n < n]
    return found[-1].rpartition("/")[2] if found else ""


# --- nothing is left in the file


def _left_in_the_file(files: Files) -> Iterator[Finding]:
    """A checkpoint of this very training has the state of an optimizer, and no optimizer has got it.

    What has the keys of what the program saves itself is taken to be its own.
    """
    groups: dict[CallSite | None, list[Touch]] = defaultdict(list)
    saves = {tuple(t.record.keys) for found in files.writes.values() for t in found if t.record.how in SAVES}
    loads = [t for reads in files.reads.values() for t in reads if t.record.how in LOADS and t.record.optimizers]
    for t in loads[:MOST_LOADS]:
        if tuple(t.record.keys) in saves and _goes_on_without(t):
            groups[t.where].append(t)
    for where, loads in groups.items():
        first = loads[0]
        keys = (
            listing([f"'{k}'" for k in first.record.optimizers], 3) if first.record.optimizers != [""] else "all of it"
        )
        yield Finding(
            rule="optimizer-state-not-loaded",
            severity="warning",
            ranks=tuple(sorted({t.number for t in loads})),
            subject=f"file {shown(first)}",
            expected="a training that goes on from its own checkpoint to take the optimizer's state from it, too",
            found=f"the state of an optimizer in it ({keys}), and steps of an optimizer that has not got it",
            cause="moments and step counts begin anew, so that the next updates are others than they would have been",
            advice="Call optimizer.load_state_dict() with it, after the optimizer is built.",
            where=where,
            count=len(loads),
            links=(f"file {first.path}",),
        )


def _goes_on_without(load: Touch) -> bool:
    """Whether a module took its part, an optimizer steps next, and none has got its own."""
    rank = load.rank
    following = next_load(load)
    taken = [s for s in rank.of(ev.StateLoaded) if load.start < s.n < following]
    if not any(s.owner == "module" for s in taken):
        return False
    steps = [s.n for s in rank.of(ev.Step) if s.n > load.start]
    if not steps:
        return False
    return not any(s.owner == "optimizer" and s.n > load.start for s in rank.of(ev.StateLoaded))
