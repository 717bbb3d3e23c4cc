"""Evidence of ranks, written by hand: each record at a line of its own choice, numbered in its order."""

from __future__ import annotations

import math
from typing import Any

from ddpcheck import evidence as ev
from ddpcheck.judging.world import Moment, Process, Rank, Stretch, World

Made = tuple[type[ev.Record], dict[str, Any]]
FILE = {"how": "", "target": "", "existed": False, "thread": ""}
LOADED = {"kind": "Net", "missing": [], "unexpected": [], "total": 4, "strict": True}
TENSORS = ev.Tensors()
WRAPPED = {
    "kind": "Net", "parameters": TENSORS, "buffers": TENSORS, "buffer_owners": [], "local_buffers": [], "order": [],
    "ignored": [], "broadcast_buffers": True, "devices": ["cpu"],
    "device_ids": None, "shared": [],
}  # fmt: skip
STEP = {
    "optimizer": 0, "number": 0, "gradients": b"", "parameters": b"", "whole": True, "state": {}, "rates": [],
    "scale": None, "usage": [], "backwards": 1, "backward_site": 0, "collectives": 0,
}  # fmt: skip
ENDED = {"how": "exit", "code": None, "groups": 0}
RAISED = {"kind": "RuntimeError", "text": "", "lost_peer": False}


def file(op: str, how: str, path: str, line: int, **more: Any) -> Made:
    return ev.File, {**FILE, "op": op, "how": how, "path": path, "site": line, **more}


def save(path: str, line: int, **more: Any) -> Made:
    return file("write", "torch.save", path, line, **{"keys": ["net"], "devices": ["cpu"], **more})


def load(path: str, line: int, **more: Any) -> Made:
    given = {"existed": True, "keys": ["net"], "devices": ["cpu"], "device": "cpu", **more}
    return file("read", "torch.load", path, line, **given)


def rename(path: str, target: str, line: int, **more: Any) -> Made:
    return file("rename", "os.rename", path, line, target=target, **more)


def remove(path: str, line: int, **more: Any) -> Made:
    return file("remove", "os.remove", path, line, **more)


def query(path: str, line: int, answer: bool, **more: Any) -> Made:
    return file("query", "os.path.exists", path, line, existed=answer, **more)


def waited(thread: str, line: int) -> Made:
    return file("join", "", "", line, thread=thread)


def call(number: int, line: int, op: str = "barrier", **more: Any) -> Made:
    return ev.Call, {"op": op, "group": "world", "number": number, "detail": "", "site": line, **more}


def loaded(owner: str, line: int, **more: Any) -> Made:
    return ev.StateLoaded, {**LOADED, "owner": owner, "site": line, **more}


def wrapped(line: int, **more: Any) -> Made:
    return ev.Wrapped, {**WRAPPED, "wrapper": 0, "site": line, **more}


def step(line: int, **more: Any) -> Made:
    return ev.Step, {**STEP, "site": line, **more}


def transfers(others: int = 0, of_models: int = 0) -> Made:
    return ev.Transfers, {"others": others, "of_models": of_models}


def exchanged(number: int, *carried: ev.Carried, of: int = 0, lost: bool = False) -> Made:
    return ev.Exchanged, {"optimizer": of, "number": number, "carried": list(carried), "lost": lost}


def ended(**more: Any) -> Made:
    return ev.Ended, {**ENDED, "site": 0, **more}


def raised(message: str, line: int, **more: Any) -> Made:
    return ev.Raised, {**RAISED, "message": message, "site": line, **more}


def world(*ranks: list[Made], world_size: int | None = None, now: Moment | None = None, **more: Any) -> World:
    """A world of ranks with these records, that has ended or is looked at now; ``more`` as :func:`rank` takes it."""
    size = world_size or len(ranks)
    return World([rank(number, records, size, **more) for number, records in enumerate(ranks)], size, now)


def rank(
    number: int,
    records: list[Made],
    size: int = 2,
    host: str = "",
    local_rank: int | None = None,
    exit_code: int | None = 0,
    signal: int | None = None,
    lines: dict[int, str] | None = None,
) -> Rank:
    """A rank of ``train.py``; each record has a line, and the text of a line is its number where it is not given."""
    process = Process(f"p{number}")
    process.add(_recorded(number, records, size, host, local_rank, lines))
    joined = process.last(ev.Joined)
    assert joined is not None
    return Rank(Stretch(process, joined, 0, math.inf), exit_code, signal)


def frames(number: int, records: list[Made], size: int = 2) -> bytes:
    """The same records as a rank of a test hands them over."""
    return b"".join(map(ev.frame, _recorded(number, records, size, "", None, None)))


def _recorded(
    number: int, records: list[Made], size: int, host: str, local_rank: int | None, lines: dict[int, str] | None
) -> list[ev.Record]:
    local = number if local_rank is None else local_rank
    at: dict[str, Any] = {"n": 0, "at": 0.0}
    found: list[ev.Record] = [
        ev.Began(**at, pid=100 + number, parent=1, host=host, node=0, argv=[], folder="/job", wall=0.0)
    ]
    for line in range(1, 100):
        text = (lines or {}).get(line, f"line {line}")
        found.append(ev.Site(**at, id=line, file="train.py", line=line, function="main", text=text))
    joined = {"rank": number, "world_size": size, "token": "t", "backend": "gloo", "local_rank": local, "site": 1}
    found.append(ev.Joined(n=1, at=0.1, **joined))
    for n, (kind, fields) in enumerate(records, 2):
        given = {"n": n, "at": n / 10, **fields}
        if kind is ev.File:
            given.setdefault("ended", given["n"])
        found.append(kind(**given))
    return found
