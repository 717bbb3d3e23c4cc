"""Sections of a log that a service shows as one line, until somebody opens them."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import IO

from ddpcheck.report.repository_paths import Service
from ddpcheck.report.workflow_commands import command

Fold = Callable[[str], AbstractContextManager[bool]]
"""Begins a section of this title, and ends it; whether the title has been written."""


def folding(service: Service | None, stream: IO[str]) -> Fold:
    """What folds on this service."""
    marks = {"github": _github, "gitlab": _gitlab}.get(service or "")
    return (lambda title: marks(stream, title)) if marks is not None else unfolded


@contextlib.contextmanager
def unfolded(title: str) -> Iterator[bool]:
    """Folds nothing."""
    yield False


@contextlib.contextmanager
def _github(stream: IO[str], title: str) -> Iterator[bool]:
    stream.write(command("group", title) + "\n")
    yield True
    stream.write(command("endgroup") + "\n")


@contextlib.contextmanager
def _gitlab(stream: IO[str], title: str) -> Iterator[bool]:
    name = f"ddpcheck_{title.replace(' ', '_')}"
    stream.write(_gitlab_mark("start", f"{name}[collapsed=true]") + f"{title}\n")
    yield True
    stream.write(_gitlab_mark("end", name) + "\n")


def _gitlab_mark(kind: str, name: str) -> str:
    return f"\x1b[0Ksection_{kind}:{int(time.time())}:{name}\r\x1b[0K"
