"""Which lines set random states: those of numpy too, and those that do so while a sample is fetched."""

from __future__ import annotations

import sys

from tests import progress

PROGRAM = """
import random, sys
from pathlib import Path
from ddpcheck.probes.recording import recorder
from ddpcheck.probes import all_probes as watching
watching.start(Path(sys.argv[1]), 1 << 20)
import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset

class Drawn(Dataset):
    def __len__(self):
        return 4
    def __getitem__(self, index):
        np.random.seed(index)  # synthetic
        return np.random.rand() + random.random()

random.seed(3)
list(DataLoader(Drawn(), batch_size=2))
recorder.stop()
from ddpcheck import evidence as ev
from ddpcheck.judging.evidence_folder import Folder
folder = Folder(Path(sys.argv[1]))
folder.read()
(process,) = folder.processes.values()
for one in process.of(ev.Stream):
    state = one.seed.startswith(ev.STATE)
    print(one.kind, one.number, "a state" if state else one.seed, one.inside, process.line(one.seeded))
"""


def test_a_line_that_seeds_while_samples_are_fetched(tmp_path):
    """numpy loads its random numbers when they are first asked for: its seeds are seen all the same."""
    script = tmp_path / "program.py"
    script.write_text(PROGRAM)
    (tmp_path / "run").mkdir()
    ran = progress.run([sys.executable, script, tmp_path / "run"], text=True, check=True)
    assert ran.stdout.splitlines() == [
        "python 0 3 False random.seed(3)",
        "numpy 0 1 True np.random.seed(index)  # synthetic",
        "python 1 3 False random.seed(3)",
        "numpy 1 3 True np.random.seed(index)  # synthetic",
    ]


def test_a_state_that_is_put_back(tmp_path):
    """It is told from a seed, whatever that is: a list of numbers is none."""
    script = tmp_path / "program.py"
    script.write_text(PROGRAM.replace("np.random.seed(index)", "np.random.seed([index, 7])").replace(
        "random.seed(3)", "random.setstate(random.getstate())"
    ))  # fmt: skip
    (tmp_path / "run").mkdir()
    ran = progress.run([sys.executable, script, tmp_path / "run"], text=True, check=True)
    python, numpy, *_ = ran.stdout.splitlines()
    assert python.startswith("python 0 a state False")
    assert numpy.startswith("numpy 0 ")
    assert "a state" not in numpy
