"""Where recordings are kept, and whether each is of today's probes, records and program."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import platform
import re
import shutil
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import torch

from tests.recordings.catalogue import DEVICE, ROOT, Recorded

STORE = Path(os.environ.get("DDPCHECK_RECORDINGS") or ROOT / "build" / "recordings")

KEY = "key.json"

RECORDS = ("ddpcheck/evidence", "ddpcheck/vocabulary")
PROBES = (
    "ddpcheck/probes",
    "ddpcheck/seams.py",
    "ddpcheck/device_simulation",
    "ddpcheck/gpus",
    "ddpcheck/zygote/imports.py",
    "ddpcheck/judging/deadlock.py",  # that a run cannot go on ends it
    "ddpcheck/judging/evidence_folder.py",
    "ddpcheck/judging/membership.py",
    "ddpcheck/judging/standstill.py",
    "tests/command/forks.py",
    "tests/corpus/forked.py",
    "tests/forking.py",
    "tests/progress.py",
    "tests/recordings/recorder.py",
)
COMMAND = ("ddpcheck/run",)
TRAININGS = (
    "ddpcheck/conformance",
    "ddpcheck/trainings",
    "fixtures/trainers",
    "fixtures/libraries",
    "fixtures/gradient_oracle",
    "fixtures/metric_oracle",
    "fixtures/resume_equivalence",
    "tests/conformance/workshop.py",
    "tests/programs/oracle_programs.py",
    "tests/recordings/trainings.py",
)
"""What decides what a recording holds, beside the program itself: any, those of the command, those of trainers."""


@cache
def fingerprint(*paths: str) -> str:
    """Of the texts of these files, and of all files in these folders."""
    found = hashlib.sha256()
    for path in paths:
        whole = ROOT / path
        for file in sorted(whole.rglob("*.py")) if whole.is_dir() else [whole]:
            found.update(f"{file.relative_to(ROOT)}\0".encode() + file.read_bytes() + b"\0")
    return found.hexdigest()[:16]


def key(program: Recorded) -> dict[str, str]:
    """What a recording of the program is made of now."""
    told = [*map(repr, program.arguments), program.ranks, program.by, *program.env, *program.options]
    return {
        "program": hashlib.sha256(f"{program.source}\0{told}".encode()).hexdigest()[:16],
        **surroundings(),
        **({} if program.by == "forks" else {"command": fingerprint(*COMMAND)}),
        **({"devices": fingerprint("tests/on_devices.py")} if program.name.endswith(DEVICE) else {}),
    }


def key_of_trainings() -> dict[str, str]:
    """What the recorded trainings of all trainers are made of now."""
    return {**surroundings(), "trainings": fingerprint(*TRAININGS)}


def surroundings() -> dict[str, str]:
    """What all recordings have in common."""
    return {
        "records": fingerprint(*RECORDS),
        "probes": fingerprint(*PROBES),
        "torch": torch.__version__,
        "Python": platform.python_version(),
    }


def folder(name: str) -> Path:
    """Where the recording of a program is kept, by its name."""
    short = re.sub(r"[^\w./=-]+", "_", name)
    return STORE / (short if len(short) < 120 else f"{short[:100]}-{hashlib.sha256(name.encode()).hexdigest()[:12]}")


def trouble(name: str, now: dict[str, str]) -> str:
    """Why a recording cannot be judged, as a clause; empty where it can."""
    try:
        then = json.loads((folder(name) / KEY).read_text())
    except (OSError, ValueError):
        return "was not recorded"
    others = [what for what in now if then.get(what) != now[what]]
    return f"was recorded with another {' and '.join(others)}" if others else ""


@contextlib.contextmanager
def writing(name: str, now: dict[str, str]) -> Iterator[Path]:
    """A folder that becomes the recording of a program when all went well; nobody else writes it meanwhile."""
    place = folder(name)
    fresh = place.with_name(f"{place.name}.fresh")
    shutil.rmtree(fresh, ignore_errors=True)
    fresh.mkdir(parents=True)
    try:
        yield fresh
    except BaseException:
        shutil.rmtree(fresh, ignore_errors=True)
        raise
    (fresh / KEY).write_text(json.dumps(now))
    shutil.rmtree(place, ignore_errors=True)
    fresh.rename(place)


@contextlib.contextmanager
def alone(name: str) -> Iterator[None]:
    """While one process records a program, others wait for it."""
    lock = STORE / "locks" / hashlib.sha256(name.encode()).hexdigest()[:24]
    lock.parent.mkdir(parents=True, exist_ok=True)
    with lock.open("w") as opened:
        fcntl.flock(opened, fcntl.LOCK_EX)
        yield
