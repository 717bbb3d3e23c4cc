"""A line that says what is being trained, on a terminal."""

from __future__ import annotations

import sys
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
from rich.progress import Progress as RichProgress


class Progress:
    """Shows how many checks are done, and what is being trained; ``wanted`` None shows it on a terminal alone."""

    def __init__(self, total: int, wanted: bool | None) -> None:
        shown = sys.stderr.isatty() if wanted is None else wanted
        self._bar = RichProgress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            console=Console(stderr=True),
            transient=True,
            disable=not shown,
        )
        self._task = self._bar.add_task("starting", total=total)

    def __enter__(self) -> Progress:
        self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bar.stop()

    def at(self, text: str) -> None:
        """Say what is being trained."""
        self._bar.update(self._task, description=text)

    def done(self) -> None:
        """One further check is done."""
        self._bar.advance(self._task)
