"""Which schedulers are written down for having no optimizer that steps."""

from __future__ import annotations

import pytest
import torch

from ddpcheck import evidence as ev
from ddpcheck.judging.evidence_folder import Folder
from ddpcheck.probes.optimizers import gradient_events, idle_schedules
from ddpcheck.probes.recording import recorder


@pytest.fixture
def heard(tmp_path):
    """What is written of so many calls, with a step of some optimizer before each, or not."""
    recorder.begin(tmp_path, 1 << 20)

    def records(rates, steps=range(1, 100), stepped=False):
        optimizer = torch.optim.SGD([torch.nn.Parameter(torch.ones(3))], lr=0.1)
        gradient_events.follow(optimizer, 5)
        scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda _: 1.0)
        now = iter(steps)
        hear = idle_schedules.watcher(lambda: next(now), lambda _: stepped)
        for rate in rates:
            optimizer.param_groups[0]["lr"] = rate
            hear(scheduler, optimizer)
        folder = Folder(tmp_path)
        folder.read()
        each = [one for process in folder.processes.values() for one in process.records]
        return [(one.optimizer, one.first, one.last) for one in each if isinstance(one, ev.ScheduledInVain)]

    yield records
    recorder.stop()


def test_rates_that_reach_nobody(heard):
    assert heard([0.1, 0.2, 0.3, 0.4, 0.5, 0.6]) == [(5, 0.1, 0.4)]


@pytest.mark.parametrize(("rates", "more"), [
    ([0.1] * 6, {}),  # which nobody would miss
    ([0.1, 0.2, 0.3], {}),
    ([0.1, 0.2, 0.3, 0.4], {"steps": [7] * 4}),  # nothing has stepped in between
    ([0.1, 0.2, 0.3, 0.4], {"stepped": True}),  # a wrapper steps what it has
    ([torch.tensor(0.1)] * 6, {}),
])  # fmt: skip
def test_what_says_nothing(heard, rates, more):
    assert heard(rates, **more) == []


def test_an_optimizer_that_is_none():
    idle_schedules.watcher(lambda: 1, lambda _: False)(object(), None)
