"""Runs a script as ranks that are forked from this process, watched and judged: the corpus in seconds.

``ddpcheck run`` starts interpreters; what the ranks record there and here,
and what is judged, is the same. ``python -m tests.corpus.forked SCRIPT
[--fault] [-n RANKS]`` shows the verdict on one script.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import socket
import tempfile
import time
from pathlib import Path

from ddpcheck.zygote.imports import import_torch

import_torch()

import msgspec  # noqa: E402
import torch  # noqa: E402
import torch.distributed  # noqa: E402

from ddpcheck.evidence import Defect  # noqa: E402
from ddpcheck.judging.deadlock import certain  # noqa: E402
from ddpcheck.judging.evidence_folder import Folder  # noqa: E402
from ddpcheck.judging.membership import worlds  # noqa: E402
from ddpcheck.judging.world import Moment  # noqa: E402
from ddpcheck.probes import all_probes  # noqa: E402
from tests.corpus.forked_run import ENDED, Ended, Ran, agent, judged  # noqa: E402
from tests.forking import run_and_leave, write_to  # noqa: E402
from tests.progress import LOOKS, NoProgress, Progress, processor_time  # noqa: E402

PATIENCE = 30.0
"""Seconds without progress after which a run is ended."""
AFTER_FAILURE = 1.5
"""Seconds that the other ranks go on after one has failed; torchrun looks ten times a second, and then ends them."""


def run(script: Path, *args: str, ranks: int = 2, env: dict[str, str] | None = None, limit: int = 1 << 28) -> Ran:
    """Run a script in so many ranks, to its end, or until it is certain that it has none; and judge it."""
    base = Path(tempfile.mkdtemp(prefix="ddpcheck-corpus-"))
    try:
        record(base, script, *args, ranks=ranks, env=env, limit=limit)
        return judged(base)
    finally:
        shutil.rmtree(base, ignore_errors=True)


def record(
    evidence: Path, script: Path, *args: str, ranks: int = 2, env: dict[str, str] | None = None, limit: int = 1 << 28
) -> None:
    """Run a script, and keep what its ranks record, and how they ended, in a folder that is there."""
    base = Path(tempfile.mkdtemp(prefix="ddpcheck-corpus-"))
    try:
        (base / "scratch").mkdir()
        ended = _run(base, evidence, script, list(args), ranks, env or {}, limit)
        (evidence / ENDED).write_bytes(msgspec.json.encode(ended))
    finally:
        shutil.rmtree(base, ignore_errors=True)


def _run(
    base: Path, evidence: Path, script: Path, args: list[str], ranks: int, env: dict[str, str], limit: int
) -> Ended:
    keeper, port = _store(ranks)
    began = time.monotonic()
    children = {}
    for rank in range(ranks):
        children[_rank(base, evidence, script, args, rank, ranks, port, env, limit)] = rank
    ended = Ended(host=socket.gethostname(), pid=os.getpid(), ranks=children)
    folder = Folder(evidence)
    running = dict(children)
    progress = Progress(lambda: sum(map(processor_time, running)), PATIENCE)
    looked = began
    idle = False
    failed_at = None
    while running:
        pid, status = os.waitpid(-1, os.WNOHANG)
        if pid in running:
            running.pop(pid)
            ended.ends.append((time.monotonic(), pid, os.waitstatus_to_exitcode(status)))
            if ended.ends[-1][2] and failed_at is None:
                failed_at = time.monotonic()
            continue
        time.sleep(0.02)
        folder.read()
        now = time.monotonic()
        stuck = failed_at is None and _certain(folder, ended)
        if now > looked + PATIENCE / LOOKS:
            looked = now
            idle = idle or _is_idle(progress)
        late = failed_at is not None and now > failed_at + AFTER_FAILURE
        if stuck or late or (idle and failed_at is None):
            ended.certain |= bool(stuck)
            ended.hung |= failed_at is None
            failed_at = failed_at or now
            for pid in running:
                os.kill(pid, signal.SIGTERM if now < failed_at + 3 else signal.SIGKILL)
    ended.seconds = time.monotonic() - began
    os.kill(keeper, signal.SIGKILL)
    os.waitpid(keeper, 0)
    ended.output = "".join(p.read_text(errors="replace") for p in sorted(base.glob("output*")))
    return ended


def _is_idle(progress: Progress) -> bool:
    try:
        progress.look()
    except NoProgress:
        return True
    return False


def _certain(folder: Folder, ended: Ended) -> bool:
    now = Moment(at=time.monotonic(), host=ended.host, wall=time.time())
    return any(certain(world) for world in worlds([agent(ended), *folder.processes.values()], now))


def _store(ranks: int) -> tuple[int, int]:
    """A process that keeps the store at which the ranks meet, on a port of its own."""
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        store = torch.distributed.TCPStore("127.0.0.1", 0, None, True, wait_for_workers=False)
        os.write(write, str(store.port).encode())
        signal.pause()
        os._exit(0)
    os.close(write)
    port = int(os.read(read, 32))
    os.close(read)
    return pid, port


def _rank(base: Path, evidence: Path, script: Path, args: list[str], rank: int, ranks: int, port: int,
          env: dict[str, str], limit: int) -> int:  # fmt: skip
    pid = os.fork()
    if pid:
        return pid
    try:
        out = os.open(base / f"output{rank}", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        write_to(out, out)
        given = {
            "RANK": rank,
            "LOCAL_RANK": rank,
            "WORLD_SIZE": ranks,
            "LOCAL_WORLD_SIZE": ranks,
            "GROUP_RANK": 0,
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": port,
            "TORCHELASTIC_USE_AGENT_STORE": "True",
            "TORCHELASTIC_RESTART_COUNT": 0,
            "SCRATCH": base / "scratch",
            "OMP_NUM_THREADS": 1,
        }
        os.environ.update({name: str(value) for name, value in {**given, **env}.items()})
        all_probes.start(evidence, limit)
        run_and_leave(str(script), args)
    finally:
        getattr(os._exit, "__wrapped__", os._exit)(1)


def told(ran: Ran) -> dict[str, object]:
    """What came of a run, as plain data."""
    return {
        "exits": ran.exits,
        "findings": [msgspec.to_builtins(f) for f in ran.verdict.findings],
        "checked": {check: one.checked for world in ran.judged for check, one in world.items()},
        "certain": ran.certain,
        "output": ran.output,
        "defects": ran.defects,
    }


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("script", type=Path)
    parser.add_argument("-n", type=int, default=2)
    parser.add_argument("--records", action="store_true", help="show the evidence itself")
    given, rest = parser.parse_known_args()
    all_probes.patch()
    ran = run(given.script.resolve(), *rest, ranks=given.n)
    print(ran.output)
    print(f"{ran.seconds:.2f} s, exits {ran.exits}, hung {ran.hung}, certain {ran.certain}")
    for world in ran.worlds if given.records else ():
        for rank in world:
            print(f"--- rank {rank.rank}: {rank.process.name}, {len(rank.workers)} workers")
            for record in [*rank.process.records, *(r for w in rank.workers for r in w.records)]:
                print("   ", record)
    for number, said in enumerate(ran.judged):
        print(f"world {number} of {len(ran.worlds[number])} ranks")
        for rank in ran.worlds[number]:
            for defect in rank.process.of(Defect):
                print(defect.text)
        for check in said.values():
            if check.checked or check.findings:
                print(f"  {check.check:28} checked {check.checked}")
            for f in check.findings:
                print(
                    f"    {f.severity} ranks {f.ranks} step {f.step} at {f.where}: {f.subject}: {f.message} {f.advice}"
                )


if __name__ == "__main__":
    main()
