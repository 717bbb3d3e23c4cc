"""A correct program's evidence, cut off as a signal would, at many moments: what is accused there, is accused falsely.

``python -m tests.corpus.cuts PROGRAM…`` shows what is found; without names, all programs that run in forks.
"""

from __future__ import annotations

import random
import sys

from ddpcheck.judging.membership import worlds
from ddpcheck.judging.world import Moment
from ddpcheck.verdict.interruption import Interruption, until
from ddpcheck.verdict.judges import judge_world
from tests.corpus import forked

CUTS = 60


def accused(path) -> list[str]:
    """The errors that are found in a program's run, interrupted at moments of it."""
    ran = forked.run(path)
    processes = list({id(p): p for w in ran.worlds for rank in w for p in (rank.process, *rank.workers)}.values())
    moments = sorted({record.at for process in processes for record in process.records})
    found = []
    for at in random.Random(0).sample(moments, min(CUTS, len(moments))):
        moment = Moment(at=at, host=forked.socket.gethostname())
        for world in worlds(until(processes, Interruption(signal=15, moment=moment)), moment):
            findings = [f for judged in judge_world(world).values() for f in judged.findings]
            found += [
                f"{path.stem}, {at - moments[0]:.3f} s: {f.check}: {f.found}" for f in findings if f.severity == "error"
            ]
    return found


if __name__ == "__main__":
    from tests.corpus.programs import programs

    wanted = [p for p in programs() if p.forkable and (p.name in sys.argv[1:] or not sys.argv[1:])]
    told = [text for program in wanted for text in accused(program.path)]
    print("\n".join(told))
    sys.exit(bool(told) or not wanted)
