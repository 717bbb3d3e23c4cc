"""Files that the ranks of a training share: who writes them, who reads them when, and what comes of it."""

from __future__ import annotations

from collections.abc import Iterable

from ddpcheck.checks import resumes, writers
from ddpcheck.checks.checkpoint_read_after_write import run as races
from ddpcheck.judging.file_history import Files
from ddpcheck.judging.world import Judged, World


def judge(world: World) -> Iterable[Judged]:
    """The verdicts of all checks on checkpoints."""
    files = Files(world)
    single, several = writers.single_writer(files)
    yield single
    yield writers.atomic_save(files, several)
    read_after_write, racing = races.judge(files, several)
    yield read_after_write
    yield resumes.map_location(files)
    yield resumes.load_complete(files, racing)
