"""From what was seen of a run, and what its processes have recorded, to its verdict."""

from __future__ import annotations

import signal
from collections.abc import Collection, Sequence

from ddpcheck.evidence import Defect, Launched
from ddpcheck.judging.membership import exits_told, worlds
from ddpcheck.judging.world import Moment, Process
from ddpcheck.verdict.interruption import Interruption, interruption, until
from ddpcheck.verdict.judges import judge_world
from ddpcheck.verdict.ranks_we_crashed import brought_down
from ddpcheck.verdict.settled import Settled
from ddpcheck.verdict.verdict import RankResult, Verdict, conclude, results_of
from ddpcheck.vocabulary.bounded_numbers import ProcessNumber, Seconds, SignalNumber
from ddpcheck.vocabulary.model import Struct
from ddpcheck.vocabulary.wording import signal_name


class Run(Struct, frozen=True, kw_only=True):
    """What was seen of a run from outside."""

    pid: ProcessNumber
    """Of the agent, or the script."""
    exit_code: int | None
    signal: SignalNumber | None
    stuck: str = ""
    """Why it was ended: what was certain, or how long a rank had waited; empty if it ended by itself."""
    enough: Moment | None = None
    """When it was ended for an error that was found in it (--fail-fast)."""
    lost: Interruption | None = None
    """When ddpcheck itself was killed, as far as that can be told from what is left."""
    hurried: bool = False
    """It was asked to end twice: nobody waits for it any more."""
    seconds: Seconds = 0.0
    launched: bool = True
    """torchrun's agent has started the ranks."""
    command: str = ""


def verdict_of(
    run: Run,
    processes: Sequence[Process],
    settled: Settled,
    chosen: Collection[str] | None,
    defects: Sequence[str] = (),
    notes: Sequence[str] = (),
    left_out: Collection[str] = (),
) -> Verdict:
    """Judge a run that is over; ``settled`` is what was judged of it before."""
    processes = list(processes)
    internal = [*defects, *(defect.text for process in processes for defect in process.of(Defect))]
    failed = bool(run.exit_code or run.signal)
    told = list(notes)
    if run.stuck:
        told.append(f"The run was ended because {run.stuck}.")
    all_of_it = worlds(processes)
    ranks = results_of(all_of_it) or _started(processes, run.pid)
    asked = run.lost or interruption(processes)
    if asked is not None and not failed and run.lost is None:
        told.append(f"{signal_name(asked.signal)} came while it ran; the program ended by itself.")
    interrupted = asked if (failed or run.lost is not None) and not run.stuck else None
    if run.enough is not None:
        told.append("The run was ended at its first error (--fail-fast): what would have followed is not judged.")
        interrupted = Interruption(signal=signal.SIGTERM, moment=run.enough)
    if interrupted is not None:
        processes = until(processes, interrupted)
    found = worlds(processes, interrupted.moment) if interrupted is not None else all_of_it
    judged = [settled.with_past(world.token, judge_world(world, internal)) for world in found]
    return conclude(
        judged,
        worlds=found,
        processes=processes,
        ranks=ranks,
        chosen=chosen,
        left_out=left_out,
        failed=failed and run.enough is None,
        hung=bool(run.stuck),
        killed_by=run.signal if run.launched else None,
        ours=brought_down(processes),
        interrupted_by=interrupted.signal if interrupted is not None and run.enough is None else None,
        command=run.command,
        seconds=run.seconds,
        notes=told,
        internal=[text.strip() for text in internal[:3]],
    )


def _started(processes: Sequence[Process], agent: int) -> list[RankResult]:
    """The ranks that torchrun has started, where none of them joined a group; torch may be in none of them."""
    exits = exits_told(processes)
    results = {}
    for process in processes:
        began = process.began
        if began is None or began.pid != agent:
            continue
        for one in process.of(Launched):
            if one.rank is not None:
                code, ended_by = exits.get((began.host, one.pid), (None, None))
                results[one.rank] = RankResult(
                    rank=one.rank, exit_code=code, signal=ended_by, host=began.host, pid=one.pid
                )
    return [results[rank] for rank in sorted(results)]
