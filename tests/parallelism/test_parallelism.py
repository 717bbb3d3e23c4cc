"""One training in ten ways: nothing is said of it, and docs/parallelism.md has what is checked."""

from __future__ import annotations

import json
import sys

import pytest

from ddpcheck.checks.registry import checks
from tests import progress
from tests.parallelism.table import NOT_OF_A_RUN, ROOT, TRAINING, WAYS, cells, options, written
from tests.torch_names import skip_without

ONE = """
import json, sys
from ddpcheck.probes import all_probes
from tests.parallelism.table import looked
all_probes.patch()
print(json.dumps(looked(*sys.argv[1:])))
"""


def column(way):
    """What the page says of one way, by check."""
    rows = [line.split("|")[1:-1] for line in written().splitlines()[2:]]
    place = 1 + list(WAYS).index(way)
    return {row[0].strip(" `"): row[place].strip() for row in rows}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.few(2)
def test_a_way(way):
    """A right training, with names or without: no finding, and each check has looked where the page says so."""
    skip_without(TRAINING)
    runs = []
    for args in options(way):
        command = [sys.executable, "-c", ONE, way, *args]
        ran = progress.run(command, cwd=ROOT, text=True)
        assert ran.returncode == 0, ran.stderr
        checked, said = json.loads(ran.stdout.splitlines()[-1])
        assert said == []
        runs.append(checked)
    assert {check: cell for check, cell in cells(runs).items() if check not in NOT_OF_A_RUN} == column(way)


def test_the_page_has_every_check():
    """What is new has a row."""
    assert set(column("ddp")) == set(checks()) - set(NOT_OF_A_RUN)
