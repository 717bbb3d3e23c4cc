"""What ``@pytest.mark.ddp`` may say, and the sentence for everything else."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

KEYWORDS = ("world_size", "backend", "device", "timeout")
BACKENDS = ("gloo", "nccl")
DEVICES = ("cpu", "cuda")


class BadMark(Exception):
    """The mark says what cannot be; the text names it and the fix."""


class Mark(NamedTuple):
    """A valid ``ddp`` mark, with its defaults filled in."""

    world_sizes: tuple[int, ...] = (2,)
    listed: bool = False
    """World sizes were given as a list: one item for each."""
    backend: str = "gloo"
    device: str = "cpu"
    timeout: float | None = None
    """Seconds; None leaves it to the option and the ini file."""


def read(marks: Iterable[tuple[Sequence[Any], dict[str, Any]]]) -> Mark:
    """Read the marks of a test, the closest first; each keyword counts where it stands closest.

    Raises BadMark, with one sentence that names the mark and the fix.
    """
    said: dict[str, Any] = {}
    for args, kwargs in marks:
        if args:
            raise BadMark(f"{_shown(args, kwargs)} takes keywords only: write {_keyworded(args)}.")
        for name, value in kwargs.items():
            if name not in KEYWORDS:
                raise BadMark(f"{_shown(args, kwargs)} has no keyword {name!r}: {_nearest(name, KEYWORDS)}.")
            _check(name, value)
            said.setdefault(name, value)
    mark = _mark(said)
    if mark.backend == "nccl" and mark.device != "cuda":
        raise BadMark(
            "@pytest.mark.ddp(backend='nccl') needs device='cuda', since NCCL moves nothing else: "
            "add it, or use backend='gloo'."
        )
    return mark


def _mark(said: dict[str, Any]) -> Mark:
    sizes = said.get("world_size", 2)
    listed = not isinstance(sizes, int)
    return Mark(
        world_sizes=tuple(sizes) if listed else (sizes,),
        listed=listed,
        backend=said.get("backend", "gloo"),
        device=said.get("device", "cpu"),
        timeout=None if said.get("timeout") is None else float(said["timeout"]),
    )


def _check(name: str, value: Any) -> None:
    shown = f"@pytest.mark.ddp({name}={value!r})"
    if name == "world_size":
        _check_world_size(shown, value)
    elif name == "timeout":
        if value is None:
            return
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value < float("inf"):
            raise BadMark(f"{shown}: the timeout is a number of seconds above 0, such as 60.")
    else:
        allowed = BACKENDS if name == "backend" else DEVICES
        if value not in allowed:
            hint = _nearest(str(value), allowed)
            if name == "device" and str(value).startswith("cuda:"):
                hint = "say 'cuda', and each rank gets the GPU of its local rank"
            raise BadMark(f"{shown}: there is no such {name}; {hint}.")


def _check_world_size(shown: str, value: Any) -> None:
    sizes = value if isinstance(value, (list, tuple)) else [value]
    if not sizes:
        raise BadMark(f"{shown}: the list is empty, so the test would never run; name a world size, such as 2.")
    for size in sizes:
        if isinstance(size, bool) or not isinstance(size, int):
            raise BadMark(f"{shown}: a world size is a whole number of ranks, such as 2, or a list such as [2, 4].")
        if size < 1:
            raise BadMark(f"{shown}: a test needs 1 rank or more; name a world size, such as 2.")
    if len(set(sizes)) < len(sizes):
        raise BadMark(f"{shown}: a world size stands there twice; name each once.")


def _nearest(word: str, known: Sequence[str]) -> str:
    close = difflib.get_close_matches(word, known, n=1)
    listed = ", ".join(known[:-1]) + " and " + known[-1]
    return f"did you mean {close[0]!r}?  It knows {listed}" if close else f"it knows {listed}"


def _shown(args: Sequence[Any], kwargs: dict[str, Any]) -> str:
    inner = [repr(a) for a in args] + [f"{k}={v!r}" for k, v in kwargs.items()]
    return f"@pytest.mark.ddp({', '.join(inner)})"


def _keyworded(args: Sequence[Any]) -> str:
    return ", ".join(f"{name}={value!r}" for name, value in zip(KEYWORDS, args, strict=False))
