"""Looks that a device is late with: what they have seen is judged as if it had been there at once.

The tensors are the CPU's. They take the way of those on a GPU, and what is computed of them arrives some looks later.
"""

from __future__ import annotations

import pytest
from running import run, script

LATE = """
    import ddpcheck.probes.digests.fast_digests as quick
    import ddpcheck.probes.digests.gpu_digests as slow
    from ddpcheck.probes.devices.device_numbers import Fetched

    class Late(Fetched):
        made = 0

        def __init__(self, numbers):
            super().__init__(numbers)
            Late.made += 1
            self.number = Late.made

        def is_there(self):
            return Late.made > self.number + 20 or Late.ended

    Late.ended = False
    slow.Fetched = Late
    quick._digest = lambda tensor, turn: None
"""

TRAINING = """
    model, optimizer = setup()
    {before}
    for number in range(12):
        optimizer.zero_grad()
        model(torch.randn(8, 4)).square().mean().backward()
        {between}
        optimizer.step()
        {after}
    Late.ended = {ends}
    dist.destroy_process_group()
"""

FAULTS = {
    "initial-broadcast": {"before": "dist.get_rank() or model.module.weight.data.add_(1.0)"},
    "gradient-sync": {"between": "dist.get_rank() or model.module.weight.grad.mul_(2.0)"},
    "parameter-sync": {"after": "number == 2 and dist.get_rank() and model.module.bias.data.add_(1.0)"},
}


def trained(tmp_path, forks, late, ends=True, **parts):
    body = TRAINING.format(**{"before": "", "between": "", "after": "", "ends": ends} | parts)
    path = script(tmp_path, (LATE if late else "    class Late: pass\n") + body)
    return run(tmp_path, "--nproc-per-node", "2", path, forks=forks)


@pytest.mark.parametrize("check", FAULTS)
def test_a_fault_is_found_as_it_always_is(tmp_path, forks, check):
    """The same check, ranks, step, subject and line, whenever the evidence arrives."""
    told = []
    for late in (False, True):
        (tmp_path / str(late)).mkdir()
        ran = trained(tmp_path / str(late), forks, late, **FAULTS[check])
        assert (ran.code, ran.document["internal"]) == (1, []), ran.err
        (finding,) = (one for one in ran.document["findings"] if one["check"] == check)
        told.append({key: finding[key] for key in ("check", "ranks", "step", "subject", "severity", "message")})
        told[-1]["line"] = finding["where"]["line"] - (LATE.count("\n") if late else 1)
    assert told[0] == told[1]


def test_a_right_program_holds(tmp_path, forks):
    """By what was looked at."""
    ran = trained(tmp_path, forks, True)
    assert (ran.code, ran.document["findings"], ran.document["internal"]) == (0, [], []), ran.err
    assert ran.document["checks"]["gradient-sync"]["checked"] >= 3
    assert ran.document["checks"]["initial-broadcast"]["status"] == "held"


def test_what_never_arrives_is_not_compared(tmp_path, forks):
    """A device that is stuck at the end holds nobody up for long, and the report says so."""
    ran = trained(tmp_path, forks, True, ends=False)
    assert (ran.code, ran.document["findings"], ran.document["internal"]) == (0, [], []), ran.err
    assert any("had not come to them at the end" in note for note in ran.document["notes"])
    coverage = ran.document["checks"]["gradient-sync"]["coverage"]
    assert 0 < coverage["compared"] <= coverage["of"] < 12  # of the steps that are on record


HOOKED = """
    model, optimizer = setup()
    own = DistributedDataParallel(nn.Embedding(4096, 64))
    own.register_comm_hook(None, lambda state, bucket: noop(bucket))
    mine = torch.optim.SGD(own.parameters(), lr=0.1)

    def noop(bucket):
        future = torch.futures.Future()
        future.set_result(bucket.buffer())
        return future

    for _ in range(4):
        mine.zero_grad()
        own(torch.randint(64, 4096, (16,))).square().sum().backward()
        for parameter in own.parameters():
            dist.all_reduce(parameter.grad)
        mine.step()
        step(model, optimizer)
    Late.ended = True
    dist.destroy_process_group()
"""


def test_gradients_that_the_program_reduces_itself(tmp_path, forks):
    """A collective writes to them, and torch counts no version: they are looked at on entry to the step."""
    path = script(tmp_path, LATE + HOOKED)
    ran = run(tmp_path, "--nproc-per-node", "2", path, forks=forks)
    assert (ran.code, ran.document["internal"]) == (0, []), ran.err
    assert ran.document["findings"] == []
