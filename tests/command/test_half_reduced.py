"""Gradients that the program reduces itself: to one rank alone, or not before every step; and right twins."""

from __future__ import annotations

from running import run, script

HEAD = """
import torch
import torch.distributed as dist
from torch import nn

dist.init_process_group("gloo")
torch.manual_seed(3)
net = nn.Sequential(nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 2))
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
torch.manual_seed(dist.get_rank())
batches = torch.randn(12, 4, 6)


def mean(collective, **more):
    for parameter in net.parameters():
        collective(parameter.grad, **more)
        parameter.grad /= dist.get_world_size()

"""

TO_ONE = """
for batch in batches:
    optimizer.zero_grad()
    net(batch).square().mean().backward()
    mean(dist.reduce, dst=0)
    optimizer.step()  # fault
    {after}
"""

WINDOWS = """
for epoch in range(4):
    for number, batch in enumerate(batches[:3], 1):
        net(batch).square().mean().backward()
        if number % 2 == 0:
            mean(dist.all_reduce)
            optimizer.step()
            optimizer.zero_grad()
    {before}
    optimizer.step()  # fault
    optimizer.zero_grad()
"""

AVERAGED = "[dist.broadcast(one.data, 0) for one in net.parameters()]"


def found(tmp_path, forks, program, **given):
    """The exit code, and each finding's check, severity and line."""
    text = program.format(**given) + "\ndist.destroy_process_group()\n"
    ran = run(tmp_path, "--nproc-per-node", "2", script(tmp_path, text, head=HEAD), forks=forks)
    lines = (HEAD + text).splitlines()
    told = [(f["check"], f["severity"], lines[f["where"]["line"] - 1].strip()) for f in ran.document["findings"]]
    return ran.code, told


FAULT = "optimizer.step()  # fault"


def test_a_sum_for_one_rank_alone(tmp_path, forks):
    assert found(tmp_path, forks, TO_ONE, after="") == (1, [("gradient-sync", "error", FAULT)])


def test_a_sum_for_the_rank_whose_parameters_all_get(tmp_path, forks):
    assert found(tmp_path, forks, TO_ONE, after=AVERAGED) == (0, [])


def test_an_epochs_last_window_that_is_not_reduced(tmp_path, forks):
    assert found(tmp_path, forks, WINDOWS, before="") == (0, [("gradient-sync", "warning", FAULT)])


def test_an_epochs_last_window_that_is(tmp_path, forks):
    assert found(tmp_path, forks, WINDOWS, before="mean(dist.all_reduce)") == (0, [])
