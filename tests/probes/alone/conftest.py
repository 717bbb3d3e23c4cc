"""What all probes put on record in the tests of a file."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ddpcheck.judging.evidence_folder import Folder
from ddpcheck.probes import all_probes
from ddpcheck.probes.recording import recorder


@pytest.fixture
def recorded(tmp_path: Path) -> Iterator[Any]:
    """What is recorded from now on, of one kind."""
    all_probes.patch()
    recorder.begin(tmp_path, 1 << 24)

    def records(kind: Any) -> list[Any]:
        folder = Folder(tmp_path)
        folder.read()
        return [record for process in folder.processes.values() for record in process.of(kind)]

    yield records
    recorder.stop()
