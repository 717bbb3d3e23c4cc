"""The folder of a checkpoint, put back and held against another: what a save has written there, or taken away."""

from __future__ import annotations

import shutil
from pathlib import Path


def restore(folder: Path, before: Path) -> None:
    """Make a folder what another one is."""
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(before, folder, symlinks=True)


def changes(before: Path, after: Path) -> bool:
    """Whether something was written, or taken away, between these two."""
    return contents(before) != contents(after)


def overlay(folder: Path, before: Path, saved: list[Path]) -> None:
    """Make a folder what ``before`` is after the changes that each of these has made to it."""
    restore(folder, before)
    there = contents(before)
    for one in saved:
        changed = contents(one)
        for name, data in changed.items():
            if there.get(name) != data:
                (folder / name).parent.mkdir(parents=True, exist_ok=True)
                (folder / name).write_bytes(data)
        for name in there.keys() - changed.keys():
            (folder / name).unlink(missing_ok=True)


def contents(folder: Path) -> dict[str, bytes]:
    """The files in a folder and below it, by their names in it."""
    return {name: (folder / name).read_bytes() for name in names(folder)}


def names(folder: Path) -> list[str]:
    """The names of the files in a folder and below it."""
    return [str(p.relative_to(folder)) for p in sorted(folder.rglob("*")) if p.is_file()]
