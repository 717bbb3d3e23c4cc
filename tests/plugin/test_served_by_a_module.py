"""What the import of a test file starts is no test's."""

from __future__ import annotations

import pytest

from tests.inner import InnerProject

SERVED = """
import os, signal, subprocess
import psutil, pytest

SERVER = subprocess.Popen(["sleep", "300"])

@pytest.mark.ddp(world_size=1)
def test_loses_the_zygote(ddp):
    os.kill(os.getppid(), signal.SIGKILL)

@pytest.mark.ddp(world_size=1)
@pytest.mark.parametrize("turn", range(2))
def test_served(ddp, turn):
    assert psutil.Process(SERVER.pid).status() != psutil.STATUS_ZOMBIE
"""


@pytest.mark.long
def test_a_server_of_the_module_lives_on_in_another_zygote(project: InnerProject) -> None:
    """The process that takes a lost one's place imports the file with the test that it is asked for."""
    project.write("test_it.py", SERVED)
    ran = project.run()
    for turn in range(2):
        seen = ran[f"test_served[{turn}]"]
        assert (seen.outcome, seen.warnings) == ("passed", []), ran.stdout
