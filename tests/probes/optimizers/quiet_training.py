"""Trains under all probes; prints the records, and for each step whether all windows were quiet after it.

    quiet_training.py FOLDER [--always]

With ``--always`` no window is ever quiet, so that every probe decides by itself.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import torch
from torch import nn

from ddpcheck import evidence as ev
from ddpcheck.judging.evidence_folder import Folder
from ddpcheck.probes import all_probes
from ddpcheck.probes.optimizers import gradient_events
from ddpcheck.probes.recording import pace, recorder

STEPS, LATE = 140, 17
TIMED = (ev.Spans, ev.Pulse)
NOT_OF_THE_TRAINING = {"n", "at", "began", "pid", "parent", "wall", "argv"}


def train(quiet: list[bool]) -> None:
    """A generator and its judge, with micro-batches; a model that steps every other time; one that begins late."""
    torch.manual_seed(0)
    generator, judge = nn.Linear(4, 4), nn.Linear(4, 1)
    generator_optimizer = torch.optim.SGD(generator.parameters(), lr=0.01)
    judge_optimizer = torch.optim.SGD(judge.parameters(), lr=0.01)
    probe = nn.Linear(4, 1)
    probe_optimizer = torch.optim.Adam(probe.parameters())
    late: tuple[nn.Module, torch.optim.Optimizer] | None = None
    for step in range(STEPS):
        sample = generator(torch.randn(3, 4))
        judge_optimizer.zero_grad()
        judge(sample.detach()).square().mean().backward()
        judge_optimizer.step()
        generator_optimizer.zero_grad()
        for _ in range(2):
            judge(generator(torch.randn(3, 4))).mean().backward()
        nn.utils.clip_grad_norm_(generator.parameters(), 0.1)
        generator_optimizer.step()
        if step % 2:
            probe(torch.randn(3, 4)).sum().backward()
            probe_optimizer.step()
        if step >= LATE:
            model = late[0] if late is not None else nn.Linear(4, 2)
            loss = model(torch.randn(3, 4)).sum()
            late = late or (model, torch.optim.SGD(model.parameters(), lr=0.1))  # after its first forward
            loss.backward()
            late[1].step()
        quiet.append(gradient_events.is_quiet())


def records(folder: Path) -> Iterator[Any]:
    """All records in their order, without times."""
    read = Folder(folder)
    read.read()
    for process in read.processes.values():
        for record in process.records:
            if not isinstance(record, TIMED):
                names = [name for name in record.__struct_fields__ if name not in NOT_OF_THE_TRAINING]
                yield type(record).__name__, {name: msgspec.to_builtins(getattr(record, name)) for name in names}


def main(folder: Path, always: bool) -> None:
    all_probes.patch()
    pace.BUDGET = 1e-9  # so that what is looked at does not depend on how fast this machine is
    recorder.begin(folder, 1 << 26)
    if always:
        gradient_events.is_quiet = lambda: False
    quiet: list[bool] = []
    train(quiet)
    recorder.stop()
    print(json.dumps({"quiet": quiet, "records": list(records(folder))}))


if __name__ == "__main__":
    main(Path(sys.argv[1]), "--always" in sys.argv)
