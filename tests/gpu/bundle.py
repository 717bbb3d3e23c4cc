"""The one file that a run on GPUs leaves, to be sent: a folder that is filled as the run goes, then packed."""

from __future__ import annotations

import contextlib
import datetime
import shutil
import tarfile
from pathlib import Path

from tests.gpu import parts
from tests.gpu.failed_tests import RUNNING, copy
from tests.gpu.variables import masked

UNFINISHED = "unfinished"
"""In a bundle: what NCCL and torch have written of tests in which pytest was ended."""

TEXTS = (".txt", ".json", ".jsonl", ".log", ".md", ".xml")


def begin(where: Path) -> Path:
    """A new folder ``ddpcheck-gpu-DATE``; a further one of the same day is numbered."""
    date = datetime.date.today().isoformat()
    for number in range(1, 1000):
        folder = where / f"ddpcheck-gpu-{date}{'' if number == 1 else f'-{number}'}"
        if not packed_name(folder).exists():
            with contextlib.suppress(FileExistsError):
                folder.mkdir(parents=True)
                return folder
    raise FileExistsError(f"there are a thousand bundles of {date} in {where}")


def packed_name(folder: Path) -> Path:
    """``ddpcheck-gpu-DATE.tar.gz``."""
    return folder.with_name(folder.name + ".tar.gz")


def put_unfinished_aside(folder: Path) -> None:
    """Keep what NCCL and torch have written of a test that has not come to its end."""
    for path in sorted((folder / RUNNING).glob("*")):
        copy(path, folder / UNFINISHED / path.name)
    shutil.rmtree(folder / RUNNING, ignore_errors=True)


def pack(folder: Path) -> Path:
    """Pack it, without what looks secret, and remove the folder; where that fails, the folder stays."""
    put_unfinished_aside(folder)
    for path in sorted(folder.rglob("*")):
        if path.is_file() and path.suffix in TEXTS:
            try:
                before = path.read_text(errors="replace")
                after = masked(before)
                if after != before:
                    path.write_text(after)
            except OSError as error:
                path.unlink(missing_ok=True)
                parts.say(
                    folder, str(path.relative_to(folder)), 0.0, f"left out: could not be looked through ({error})"
                )
        if path.is_file() and (name := masked(path.name)) != path.name:
            path.rename(path.with_name(name))  # a file of evidence is named after its machine
    packed = packed_name(folder)
    with tarfile.open(packed, "w:gz") as file:
        file.add(folder, arcname=folder.name)
    shutil.rmtree(folder, ignore_errors=True)
    return packed
