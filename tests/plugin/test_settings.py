"""Settings of a session that the processes of ranks have, too, and that do no harm there."""

from __future__ import annotations

import pytest

from tests.inner import InnerProject, Ran

pytestmark = pytest.mark.long

INI = """
[pytest]
log_file = log.txt
log_file_level = INFO
"""

MANY_DESCRIPTORS = """
import os, resource

_, most = resource.getrlimit(resource.RLIMIT_NOFILE)
resource.setrlimit(resource.RLIMIT_NOFILE, (min(most, 4096), most))
HELD = [os.open(os.devnull, os.O_RDONLY) for _ in range(1100)]
"""

FORKED = """
import logging
import pytest, torch
import torch.distributed as dist

@pytest.mark.ddp
def test_forked(ddp):
    dist.all_reduce(torch.ones(1))

def test_plain(): logging.getLogger().info("plain words")
"""


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> tuple[InnerProject, Ran]:
    """A session with more than 1024 descriptors, which logs to a file."""
    project = InnerProject(tmp_path_factory.mktemp("session") / "project")
    project.write("pytest.ini", INI)
    project.write("conftest.py", MANY_DESCRIPTORS)
    project.write("test_a.py", 'import logging\ndef test_early(): logging.getLogger().info("early words")\n')
    project.write("test_b_forked.py", FORKED)
    return project, project.run()


def test_more_than_1024_descriptors(session: tuple[InnerProject, Ran]) -> None:
    """The numbers of the runtime's descriptors do not matter."""
    assert session[1]["test_forked"].outcome == "passed", session[1].stdout


def test_the_log_file_is_the_sessions_own(session: tuple[InnerProject, Ran]) -> None:
    """No process of ranks opens the file anew."""
    log = (session[0].folder / "log.txt").read_text()
    assert "early words" in log
    assert "plain words" in log
    assert "\0" not in log
