"""What went wrong where no rank was: before a process joined a group, or in one that never did."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ddpcheck import evidence as ev
from ddpcheck.judging.world import Process
from ddpcheck.vocabulary.model import CallSite, Finding
from ddpcheck.vocabulary.wording import count, listing, ranks_text, signal_name

Numbers = Mapping[tuple[str, int], int]
"""The rank that a launcher gave to a process, by host and pid."""

Endings = Mapping[int, tuple[int | None, int | None]]
"""By rank: exit code, and signal."""


def failure(
    processes: Iterable[Process],
    numbers: Numbers,
    endings: Mapping[int, tuple[int | None, int | None]],
    killed_by: int | None = None,
) -> Finding:
    """Why a program failed that left no failure in any rank's evidence: its first exception, or its exit codes."""
    processes = list(processes)
    raised = sorted(
        ((error.lost_peer, _wall(process, error.at), process, error) for process in processes if _script(process)
         for error in process.of(ev.Raised)),
        key=lambda found: found[:2],
    )  # fmt: skip
    if raised:
        return _raised([(process, error) for _, _, process, error in raised], numbers)
    bad = {rank: ending for rank, ending in endings.items() if ending not in ((0, None), (None, None))}
    if killed_by is not None and not bad:
        return _launcher_killed(killed_by)
    whole = not any(process.incomplete for process in processes)
    known = ": no process that had imported torch has raised an exception" if whole else ""
    return Finding(
        check="rank-failure",
        rule="error-exit",
        ranks=tuple(sorted(bad)),
        subject="the program",
        expected="every process to end with exit code 0",
        found=_codes(bad) if bad else "that the program ended with an error",
        advice=f"See the program's own output above{known}.",
        links=("stop",),
    )


def _launcher_killed(number: int) -> Finding:
    return Finding(
        check="rank-failure",
        rule="launcher-killed",
        ranks=(),
        subject="the launcher",
        expected="the program to run to its end",
        found=f"that the process which had started the ranks was killed by {signal_name(number)}; the ranks that it "
        "left were ended",
        advice="Look for who sent the signal: for SIGKILL, the kernel's log (dmesg) says whether memory had run out.",
        links=("stop",),
    )


def _raised(errors: list[tuple[Process, ev.Raised]], numbers: Numbers) -> Finding:
    process, error = errors[0]
    alike = [p for p, e in errors if (e.kind, p.where(e.site)) == (error.kind, process.where(error.site))]
    ranks = {n for n in (_number(p, numbers) for p in alike) if n is not None}
    message = error.message.strip().splitlines()
    said = f"{error.kind}: {message[0]}" if message else error.kind
    joined = bool(process.of(ev.Joined))
    when = "outside of a process group" if joined else "before the process had joined a process group"
    return Finding(
        check="rank-failure",
        rule="uncaught-exception",
        ranks=tuple(sorted(ranks)),
        subject=error.kind,
        expected="the program to run to its end",
        found=f"{said}, raised {when}",
        advice="Look at the traceback in the program's output above.",
        where=process.where(error.site),
        count=len(alike),
        links=("stop",),
    )


def hang(processes: Iterable[Process], numbers: Numbers) -> Finding:
    """Why a program hangs where no judge of a world says it: processes that wait to become ranks, or just go on."""
    waiting = []
    for process in processes:
        joining = process.last(ev.Joining)
        joined = process.last(ev.Joined)
        if joining is not None and (joined is None or joined.n < joining.n) and not process.of(ev.Ended):
            waiting.append((process, joining))
    if not waiting:
        return Finding(
            check="no-hang",
            rule="no-progress",
            ranks=(),
            subject="the program",
            expected="every process to make progress",
            found="none for as long as the stall timeout allows",
            advice="See where the program stands; a longer --stall-timeout helps one that is merely slow.",
            links=("stop",),
        )
    sizes = {joining.world_size for _, joining in waiting if joining.world_size is not None}
    known = {r for r in (_joining_rank(p, j, numbers) for p, j in waiting) if r is not None}
    process, joining = waiting[0]
    size = max(sizes) if sizes else None
    found = f"{count(len(waiting), 'process', 'processes')} waiting in init_process_group"
    absent = sorted(set(range(size)) - known) if size is not None and len(known) == len(waiting) else []
    if absent:
        found += f" for {ranks_text(absent)}"
    elif len(sizes) > 1:
        found += f", with different world sizes ({', '.join(map(str, sorted(sizes)))})"
    return Finding(
        check="no-hang",
        rule="incomplete-process-group",
        ranks=tuple(absent or sorted(known)),
        subject="init_process_group",
        expected=f"{size} processes to join the process group" if size else "all processes to join the process group",
        found=found,
        advice="Call init_process_group in every process, with the world size that were started and a rank each.",
        where=process.where(joining.site),
        proof=_places(waiting, numbers),
        links=("stop",),
    )


def _places(waiting: list[tuple[Process, ev.Joining]], numbers: Numbers) -> tuple[tuple[int, CallSite], ...]:
    places = []
    for process, joining in waiting[1:]:
        rank, where = _joining_rank(process, joining, numbers), process.where(joining.site)
        if rank is not None and where is not None:
            places.append((rank, where))
    return tuple(places)


def _joining_rank(process: Process, joining: ev.Joining, numbers: Numbers) -> int | None:
    return joining.rank if joining.rank is not None and joining.rank >= 0 else _number(process, numbers)


def _number(process: Process, numbers: Numbers) -> int | None:
    joined = process.last(ev.Joined)
    if joined is not None:
        return joined.rank
    began = process.began
    return numbers.get((began.host, began.pid)) if began is not None else None


def _script(process: Process) -> bool:
    """It runs the script, and does not merely load samples for one that does."""
    return process.began is None or process.began.worker_of is None


def _wall(process: Process, at: float) -> float:
    """The clocks of several hosts, side by side."""
    began = process.began
    return began.wall + at - began.at if began is not None else at


def _codes(bad: Endings) -> str:
    by_ending: dict[str, list[int]] = {}
    for rank, (code, number) in bad.items():
        words = signal_name(number) if number is not None else f"exit code {code}"
        by_ending.setdefault(words, []).append(rank)
    return listing([f"{words} of {ranks_text(ranks)}" for words, ranks in by_ending.items()])
