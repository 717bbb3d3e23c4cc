"""One program under torchrun and under ``ddpcheck run``, and in what the two differ.

``python -m tests.command.differing [NAME …]`` tells it of all surroundings, or of some.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from tests.command.surroundings import ALL, Surrounding
from tests.progress import NoProgress, communicate, kill

TORCHRUN = ("-m", "torch.distributed.run")
DDPCHECK = ("-m", "ddpcheck.cli", "run")
ALONE = ()
"""The interpreter itself, as torchrun starts it for one rank: without the seconds that the launcher takes."""
_OF_A_RANK = {
    "RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1", "LOCAL_WORLD_SIZE": "1", "GROUP_RANK": "0",
    "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "0", "TORCHELASTIC_RESTART_COUNT": "0",
}  # fmt: skip


@dataclass
class Ended:
    """What is left of a run."""

    code: int
    """The launcher's."""
    out: bytes
    err: bytes
    files: dict[bytes, tuple[int, bytes]]
    """By their paths in the working directory: mode and content, or target."""
    failed: list[int]
    """The exit codes of ranks that failed, as the launcher tells of them."""
    document: dict[str, object] | None = None
    seconds: float = 0.0


def run(launcher: tuple[str, ...], around: Surrounding, base: Path) -> Ended:
    """Run it in a working directory that has nothing else in it."""
    shutil.rmtree(base / "work", ignore_errors=True)
    folder = os.fsencode(base / "work")
    if around.folder is not None:
        folder = os.path.join(folder, os.fsencode(around.folder))
    os.makedirs(folder, exist_ok=True)
    if around.prepare is not None:
        around.prepare(Path(os.fsdecode(folder)))
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    environment.pop("PYTEST_CURRENT_TEST", None)
    for name, value in around.environment.items():
        environment.pop(name, None)
        if value is not None:
            environment[name] = value
    if launcher is ALONE:
        environment.update(_OF_A_RANK)
    report = base / "verdict.json"
    report.unlink(missing_ok=True)
    own = ["--json", report] if launcher is DDPCHECK else []
    given = [] if launcher is ALONE else [*own, "--standalone", f"--nproc-per-node={around.ranks}", *around.options]
    command = [sys.executable, *launcher, *given]
    began = time.monotonic()
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        process = subprocess.Popen(
            [*command, *around.program], cwd=folder, env=environment, stdin=subprocess.PIPE, stdout=out, stderr=err,
            preexec_fn=around.before, start_new_session=True,
        )  # fmt: skip
        try:
            communicate(process, around.stdin)
        except NoProgress:
            kill(process.pid)
            process.wait()
        seconds = time.monotonic() - began
        written = []
        for file in (out, err):
            file.seek(0)
            written.append(file.read())
    if not around.in_order:
        # torchrun's ranks are unbuffered, and write a line piece by piece: those of two ranks may lie in each other.
        written[0] = bytes(sorted(written[0]))
    codes = [int(found) for found in re.findall(rb"exitcode *: (-?\d+)", written[1])]
    document = json.loads(report.read_text()) if report.exists() else None
    if launcher is DDPCHECK and document is not None:
        codes = [-r["signal"] if r["signal"] else r["exit_code"] for r in document["ranks"]]
    return Ended(
        process.returncode, *written, _files(os.fsencode(base / "work"), around.by_chance), codes, document, seconds
    )


_RUN_ID = re.compile(rb"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}_\w{8}")
"""torchrun's name for a run, in the paths of logs."""


def _files(folder: bytes, by_chance: Collection[bytes]) -> dict[bytes, tuple[int, bytes]]:
    found: dict[bytes, tuple[int, bytes]] = {}
    for parent, folders, files in os.walk(folder):
        folders[:] = [name for name in folders if name != b"__pycache__"]
        for name in (*folders, *files):
            path = os.path.join(parent, name)
            mode = os.lstat(path).st_mode
            content = b""
            if stat.S_ISLNK(mode):
                content = os.readlink(path)
            elif stat.S_ISREG(mode) and name not in by_chance:
                content = Path(os.fsdecode(path)).read_bytes()
            found[_RUN_ID.sub(b"ID", os.path.relpath(path, folder))] = (mode, content)
    return found


# --- differences


def differences(theirs: Ended, ours: Ended) -> list[str]:
    """In what a run under ddpcheck is another than under torchrun, in words."""
    found = []
    if ours.out != theirs.out:
        found.append(f"standard output: {_apart(theirs.out, ours.out)}")
    errors = [_by_the_program(one.err) for one in (theirs, ours)]
    if errors[0] != errors[1]:
        found.append(f"standard error: {_apart(*errors)}")
    if bool(theirs.code) != (ours.code not in (0, 3)) and not _is_accused(ours):
        found.append(f"exit code: {theirs.code} under torchrun, {ours.code} under ddpcheck")
    if theirs.code and theirs.failed and theirs.failed[0] not in ours.failed:
        found.append(f"exit codes of ranks: {theirs.failed} under torchrun, {ours.failed} under ddpcheck")
    for path in sorted({*theirs.files, *ours.files}):
        one, other = theirs.files.get(path), ours.files.get(path)
        if one != other:
            found.append(f"file {path!r}: {_of_file(one)} under torchrun, {_of_file(other)} under ddpcheck")
    if ours.code == 4 or b"ddpcheck itself" in ours.err:
        found.append(f"ddpcheck itself failed: {ours.err[-1500:].decode(errors='replace')}")
    return found


def _is_accused(ended: Ended) -> bool:
    return ended.document is not None and ended.document["verdict"] == "violated"


def _apart(theirs: bytes, ours: bytes) -> str:
    at = next((n for n, (a, b) in enumerate(zip(theirs, ours, strict=False)) if a != b), min(len(theirs), len(ours)))
    start = max(0, at - 60)
    return (
        f"from byte {at} of {len(theirs)} on, torchrun's {theirs[start : at + 200]!r} and ddpcheck's "
        f"{ours[start : at + 200]!r} ({len(ours)} bytes)"
    )


def _of_file(file: tuple[int, bytes] | None) -> str:
    return "none" if file is None else f"{stat.filemode(file[0])}, {len(file[1])} bytes {file[1][:60]!r}"


_NOT_THE_PROGRAMS = (
    rb"^ddpcheck [\xe2-].*",  # the report, to the end
    rb"^Traceback \(most recent call last\):\n  File \"<frozen runpy>\".*?ChildFailedError: *\n",
    rb"^=+\n[^\n]* FAILED\n.*?^=+\n",
    rb"^[WEI]\d{4} [^\n]*\n",
    # What the fault handler shows, a thread and modules of ours among it.
    rb"^Extension modules: [^\n]*\n",
    rb"^Thread 0x[0-9a-f]+ [^\n]*\n(  File \"[^\"]*/ddpcheck/probes/[^\n]*\n)+",
)
_FRAME = rb"(\[rank\d+\]: *)?"
_OURS = rb"^" + _FRAME + rb"  File \"[^\"]*/ddpcheck/probes/[^\n]*\n(" + _FRAME + rb"    [^\n]*\n)*"
"""A frame of a probe's in a traceback: it is there, since the probe is; the program's own are as they were."""


def _by_the_program(err: bytes) -> bytes:
    """Standard error without what the launchers have to say: addresses and numbers are another's each time."""
    for part in (*_NOT_THE_PROGRAMS, _OURS):
        err = re.sub(part, b"", err, flags=re.MULTILINE | (0 if part is _OURS else re.DOTALL))
    kept = b"\n".join(line for line in err.splitlines() if line.strip())
    return re.sub(rb"0x[0-9a-f]+|\d+", b"#", kept)


def compared(around: Surrounding, base: Path, launcher: tuple[str, ...] = TORCHRUN) -> list[str]:
    """Run a program both ways, and tell the difference."""
    return differences(run(launcher, around, base), run(DDPCHECK, around, base))


def main() -> int:
    """Show the differences; how many of the programs have some."""
    by_name = {around.name: around for around in ALL}
    parser = argparse.ArgumentParser(description="Programs under torchrun and `ddpcheck run`, and how they differ.")
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"all by default; of {', '.join(by_name)}")
    wanted, differ = parser.parse_args().names, 0
    if unknown := set(wanted) - set(by_name):
        parser.error(f"no program has the name {', '.join(sorted(unknown))}; --help lists them")
    for around in [by_name[name] for name in wanted] or ALL:
        with tempfile.TemporaryDirectory(prefix="differing-") as base:
            theirs, ours = (run(launcher, around, Path(base)) for launcher in (TORCHRUN, DDPCHECK))
        found = differences(theirs, ours)
        differ += bool(found)
        verdict = ours.document["verdict"] if ours.document else "without a verdict"
        ends = f"exit codes {theirs.code} and {ours.code}, {theirs.seconds:.1f} and {ours.seconds:.1f} s"
        print(f"{'DIFFERS' if found else 'same   '} {around.name}: {verdict}, {ends}")
        print("".join(f"    {line}\n" for line in found), end="", flush=True)
    print(f"{differ} differ")
    return min(differ, 1)


if __name__ == "__main__":
    sys.exit(main())
