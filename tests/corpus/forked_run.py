"""How a run in forked ranks ended, and what the judges say of it: nothing here imports torch, or watches it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from ddpcheck.evidence import Began, ChildEnded, Defect
from ddpcheck.judging.evidence_folder import Folder
from ddpcheck.judging.membership import worlds
from ddpcheck.judging.world import Judged, Process, World
from ddpcheck.verdict.judges import judge_world
from ddpcheck.verdict.verdict import RankResult, Verdict, conclude


@dataclass
class Ran:
    """One run: how the ranks ended, and what the judges say of each world."""

    exits: dict[int, int] = field(default_factory=dict)
    """By rank: the exit code, negative for a signal."""
    hung: bool = False
    certain: bool = False
    seconds: float = 0.0
    worlds: list[World] = field(default_factory=list)
    judged: list[dict[str, Judged]] = field(default_factory=list)
    verdict: Verdict | None = None
    """What the command would say of it all."""
    output: str = ""

    @property
    def defects(self):
        """What went wrong in ddpcheck itself."""
        processes = [p for world in self.worlds for rank in world for p in (rank.process, *rank.workers)]
        return [defect.text for process in processes for defect in process.of(Defect)]

    @property
    def findings(self):
        return [f for one in self.judged for judged in one.values() for f in judged.findings]


class Ended(msgspec.Struct, kw_only=True):
    """How the ranks of a run ended, as whoever forked them saw it."""

    host: str
    pid: int
    """Of who forked them."""
    ranks: dict[int, int]
    """By process id: the rank."""
    ends: list[tuple[float, int, int]] = []
    """When, the process id, and the exit code, negative for a signal; in this order."""
    hung: bool = False
    certain: bool = False
    seconds: float = 0.0
    output: str = ""


ENDED = "ended.json"


def judged(evidence: Path, seen: Callable[[list[Process]], list[Process]] = list) -> Ran:
    """What the judges say of a run that is kept; ``seen`` may change what its processes have recorded."""
    ended = msgspec.json.decode((evidence / ENDED).read_bytes(), type=Ended)
    folder = Folder(evidence)
    folder.read()
    processes = seen(list(folder.processes.values()))
    ran = Ran(
        exits={ended.ranks[pid]: code for _, pid, code in ended.ends},
        hung=ended.hung,
        certain=ended.certain,
        seconds=ended.seconds,
        output=ended.output,
    )
    ran.worlds = worlds([agent(ended), *processes])
    ran.judged = [judge_world(world) for world in ran.worlds]
    ran.verdict = _concluded(ran, processes, ended)
    return ran


def agent(ended: Ended) -> Process:
    """What torchrun's agent would have recorded."""
    agent = Process("agent")
    agent.add(
        ChildEnded(n=0, at=at, pid=pid, code=code if code >= 0 else None, signal=-code if code < 0 else None)
        for at, pid, code in ended.ends
    )
    agent.add([
        Began(n=0, at=0.0, pid=ended.pid, parent=0, host=ended.host, node=0, argv=[], folder="", wall=0.0)
    ])  # fmt: skip
    return agent


def _concluded(ran: Ran, processes: list[Process], ended: Ended) -> Verdict:
    ranks = [
        RankResult(rank=rank, exit_code=max(ran.exits[rank], 0), host=ended.host, pid=pid)
        for pid, rank in ended.ranks.items()
    ]
    return conclude(
        ran.judged,
        worlds=ran.worlds,
        processes=processes,
        ranks=() if ran.worlds else ranks,
        failed=any(ran.exits.values()),
        hung=ran.hung,
        internal=ran.defects,
    )
