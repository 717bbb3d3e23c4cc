"""The pytest project of a soak run: its tests as files in a folder."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

from scenarios import Case

PER_FILE = 100

HERE = Path(__file__).parent
COPIED = ("bodies.py", "bodies_common.py", "bodies_passing.py", "bodies_failing.py")

INI = """\
[pytest]
addopts = -p no:cacheprovider -p no:randomly
junit_family = xunit2
"""

TEST = """

@pytest.mark.parametrize(("kind", "number"), CASES)
def test(ddp, kind, number, around, request):
    bodies.run(kind, ddp, number, request)
"""

HEAD = """\
import bodies
import pytest

pytestmark = pytest.mark.ddp(world_size=2)


@pytest.fixture
def around(ddp, kind, number):
    bodies.set_up(kind, ddp, number)
    yield
    bodies.tear_down(kind, ddp, number)


"""


def write(folder: Path, cases: Sequence[Case]) -> None:
    """Write the project that runs these tests, in their order."""
    folder.mkdir(parents=True)
    (folder / "pytest.ini").write_text(INI)
    shutil.copy(HERE / "watching.py", folder / "conftest.py")
    for name in COPIED:
        shutil.copy(HERE / name, folder / name)
    for begin in range(0, len(cases), PER_FILE):
        (folder / f"test_{begin // PER_FILE:03}.py").write_text(_file(cases[begin : begin + PER_FILE]))


def _file(cases: Sequence[Case]) -> str:
    params = "".join(f"    {_param(case)},\n" for case in cases)
    return f"{HEAD}CASES = [\n{params}]\n{TEST}"


def _param(case: Case) -> str:
    marks = f", marks=[{', '.join(case.scenario.marks)}]" if case.scenario.marks else ""
    return f'pytest.param("{case.scenario.kind}", {case.number}, id="{case.id}"{marks})'


def number_of(nodeid: str) -> int:
    """The number of the test with this id, or name."""
    return int(nodeid.rsplit("-", 1)[1].rstrip("]"))
