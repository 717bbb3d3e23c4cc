"""What a training leaves behind: groups, threads, processes, ports, and memory that ranks share unawares."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from ddpcheck import evidence as ev
from ddpcheck.judging.world import Judged, Rank, World
from ddpcheck.vocabulary.model import CallSite, Finding
from ddpcheck.vocabulary.wording import count, listing, ranks_text

_POOLS = ("ThreadPoolExecutor", "asyncio_", "QueueFeederThread", "QueueManagerThread", "ExecutorManagerThread")
"""Threads that the interpreter itself ends."""


DESTROY = "Call torch.distributed.destroy_process_group() at the end of every rank."


def judge(world: World) -> Judged:
    """The verdict on the ranks that came to their end by themselves, and on what they share."""
    ended = [rank for rank in world if _ended(rank) is not None]
    findings = (*_port(world), *_same_memory(world), *_groups(ended), *_running(ended))
    because = "" if ended or findings else "no rank was seen to come to its end by itself"
    return Judged(checked=len(ended), of=len(world), findings=findings, skipped_because=because)


def _ended(rank: Rank) -> ev.Ended | None:
    """The last word of a rank that has done all that it was to do."""
    last = rank.last(ev.Ended)
    if last is None or last.how == "exception" or rank.of(ev.Raised):
        return None
    return last if not last.code and not rank.exit_code and rank.signal is None else None


# --- groups


def _groups(ended: list[Rank]) -> Iterator[Finding]:
    left: dict[CallSite | None, list[tuple[Rank, int]]] = defaultdict(list)
    for rank in ended:
        last = rank.last(ev.Ended)
        # Who leaves by os._exit means to leave everything as it is.
        if last is not None and last.groups > 0 and last.how != "os._exit":
            left[rank.where(rank.joined.site)].append((rank, last.groups))
    for where, found in left.items():
        ranks = tuple(rank.rank for rank, _ in found)
        most = max(groups for _, groups in found)
        yield Finding(
            rule="undestroyed-process-group",
            severity="warning",
            ranks=ranks,
            subject="the process group",
            expected="process groups to be destroyed before the program ends",
            found=f"{count(most, 'group')} still there at the end of {ranks_text(ranks)}",
            cause="the ranks' connections and threads are torn down in no order: some may then abort, or wait for ever",
            advice=DESTROY,
            where=where,
        )


# --- threads and processes


def _running(ended: list[Rank]) -> Iterator[Finding]:
    for noun, plural in (("thread", "threads"), ("process", "processes")):
        found = [(rank, left) for rank in ended if (left := _left(rank, noun))]
        if not found:
            continue
        ranks = tuple(rank.rank for rank, _ in found)
        yield Finding(
            rule="running-threads" if noun == "thread" else "running-processes",
            severity="warning",
            ranks=ranks,
            subject=found[0][1][0],
            expected=f"the {plural} that a rank has started to be over before it ends",
            found=f"{listing((name for _, left in found for name in left), 3)} still running at the end of "
            f"{ranks_text(ranks)}",
            advice=f"Let each {noun} end, and join() it, before the rank does.",
            where=_started(found[0][0], found[0][1]),
        )


def _left(rank: Rank, noun: str) -> list[str]:
    """What was left, by name; libraries that the script uses may well tidy up after themselves."""
    last = rank.last(ev.Lingering)
    if last is None:
        return []
    starts = rank.of(ev.Started)
    if noun == "process":
        known = {s.pid: s for s in starts if s.kind == "process"}
        found = [(name, known.get(_pid(name))) for name in last.children]
        return [
            f"{start.name} (pid {start.pid})" if start is not None else name
            for name, start in found
            if start is None or not start.library
        ]
    others = {s.name for s in starts if s.kind == "thread" and s.library}
    return [name for name in last.threads if not name.startswith(_POOLS) and name not in others]


def _pid(name: str) -> int | None:
    pid = name.partition(":")[0]
    return int(pid) if pid.isdigit() else None


def _started(rank: Rank, left: list[str]) -> CallSite | None:
    """The line that has started one of these."""
    for start in rank.of(ev.Started):
        name = f"{start.name} (pid {start.pid})" if start.kind == "process" else start.name
        if name in left:
            return rank.where(start.site)
    return None


# --- ports


def _port(world: World) -> Iterator[Finding]:
    found = [
        (rank, raised)
        for rank, raised in world.of(ev.Raised)
        if any(word in raised.message for word in ("EADDRINUSE", "Address already in use", "address already in use"))
    ]
    if found:
        rank, first = found[0]
        yield Finding(
            rule="port-in-use",
            ranks=tuple(r.rank for r, _ in found),
            subject="the port",
            expected="the port at which the ranks meet to be free",
            found=" ".join(first.message.split())[:200],
            cause="another program has it, or one that was not ended properly",
            advice="Let torchrun choose a free port (--standalone, or --rdzv-endpoint=localhost:0), and fix none in "
            "the script.",
            where=rank.where(first.site),
            links=("stop",),
        )


# --- memory


def _same_memory(world: World) -> Iterator[Finding]:
    """Parameters of several ranks that lie in the same memory."""
    users: dict[str, list[tuple[Rank, int, str]]] = defaultdict(list)
    for rank in world:
        host = rank.process.began.host if rank.process.began is not None else ""
        for placed in rank.of(ev.Placed):
            for name, memory in placed.memory.items():
                users[f"{host} {memory}"].append((rank, placed.wrapper, name))
    shared = [found for found in users.values() if len({rank.rank for rank, _, _ in found}) > 1]
    if not shared:
        return
    first = shared[0][0]
    rank, number, name = first
    built = {w.wrapper: w for w in rank.of(ev.Wrapped)}
    where = rank.where(built[number].site) if number in built else None
    ranks = tuple(sorted({r.rank for found in shared for r, _, _ in found}))
    names = sorted({name for found in shared for _, _, name in found})
    yield Finding(
        rule="parameters-in-shared-memory",
        ranks=ranks,
        subject=name,
        expected="each rank to have parameters of its own",
        found=f"{count(len(names), 'parameter')} ({listing(names, 3)}) of {ranks_text(ranks)} in the same memory: "
        "what one rank writes, all have, and every step is made once by each of them",
        cause="the module was built in the parent process and handed to the ranks, which shares its CPU memory",
        advice="Build the module in each rank, or copy it there (copy.deepcopy) before the wrap.",
        where=where,
        links=(f"wrapper {number}",),
    )
