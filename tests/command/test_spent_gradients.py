"""Each reduction is stepped on once: again or not at all is found, and right programs that look like it are not."""

from __future__ import annotations

from running import run, script

HEAD = """
import contextlib
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
torch.manual_seed(1 + dist.get_rank())
data = torch.randn(12, 8, 6)


def model(width=1):
    return DistributedDataParallel(nn.Sequential(nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, width)))


def loss_of(net, batch):
    return net(batch).square().mean()

"""

FAULTY = """
def twice_with_a_scaler():
    net = model()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    scaler = torch.amp.GradScaler("cpu", init_scale=8.0)
    for batch in data:
        optimizer.zero_grad()
        scaler.scale(loss_of(net, batch)).backward()
        scaler.step(optimizer)
        scaler.update()
        nn.utils.clip_grad_norm_(net.parameters(), 0.1)
        optimizer.step()  # again


def zeroed_before_the_step(set_to_none):
    net = model()
    optimizer = torch.optim.AdamW(net.parameters(), lr=0.01)
    for batch in data:
        loss_of(net, batch).backward()
        optimizer.zero_grad(set_to_none=set_to_none)
        optimizer.step()  # emptied


def accumulated_and_zeroed():
    net = model()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    for number, batch in enumerate(data):
        optimizer.zero_grad()
        loss_of(net, batch).backward()  # dropped
        if number % 3 == 2:
            optimizer.step()


twice_with_a_scaler()
zeroed_before_the_step(True)
zeroed_before_the_step(False)
accumulated_and_zeroed()
dist.destroy_process_group()
"""


def test_gradients_that_are_stepped_on_again_or_not_at_all(tmp_path, forks):
    """Four trainings of one program, each with a fault of its own: errors where it is certain, and where."""
    path = script(tmp_path, FAULTY, head=HEAD)
    lines = path.read_text().splitlines()
    ran = run(tmp_path, "--nproc-per-node", "2", path, forks=forks)
    found = [(f["severity"], f["check"], f["ranks"], f["where"]["line"]) for f in ran.document["findings"]]
    again, emptied, dropped = (
        next(n for n, line in enumerate(lines, 1) if line.endswith(mark))
        for mark in ("# again", "# emptied", "# dropped")
    )
    assert found == [
        ("error", "reducer-coverage", [0, 1], again),
        ("error", "optimizer-coverage", [0, 1], emptied),
        ("warning", "accumulation-window", [0, 1], dropped),
    ]


RIGHT = """
def infinite_steps_are_left_out():
    net = model()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**127, growth_interval=1)
    for batch in data:
        optimizer.zero_grad()
        scaler.scale(loss_of(net, batch)).backward()
        scaler.step(optimizer)
        scaler.update(2.0**127 if batch is not data[-1] else 1.0)


def adversaries():
    maker, judge = model(6), model()
    of_maker = torch.optim.Adam(maker.parameters(), lr=0.01)
    of_judge = torch.optim.Adam(judge.parameters(), lr=0.01)
    for batch in data:
        of_judge.zero_grad()
        loss_of(judge, batch - maker(batch).detach()).backward()
        of_judge.step()
        of_maker.zero_grad()
        loss_of(judge, maker(batch)).backward()  # the judge's are reduced in vain
        of_judge.zero_grad()
        of_maker.step()


def with_a_closure():
    net = model()
    optimizer = torch.optim.LBFGS(net.parameters(), lr=0.1, max_iter=4)
    for batch in data[:4]:

        def closure():
            optimizer.zero_grad()
            loss = loss_of(net, batch)
            loss.backward()
            return loss

        optimizer.step(closure)


def accumulated():
    net = model()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    for number, batch in enumerate(data):
        with net.no_sync() if number % 3 < 2 else contextlib.nullcontext():
            loss_of(net, batch).backward()
        if number % 3 == 2:
            optimizer.step()
            net.zero_grad()


def two_optimizers():
    net = model()
    first, last = (torch.optim.SGD(net.module[place].parameters(), lr=0.01) for place in (0, 2))
    for batch in data:
        loss_of(net, batch).backward()
        first.step()
        last.step()
        net.zero_grad()


def warmed_up():
    net = model()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    loss_of(net, data[0]).backward()
    optimizer.zero_grad()
    for number, batch in enumerate(data):
        loss_of(net, batch).backward()
        if number != 5:  # as where a loss is not finite
            optimizer.step()
        optimizer.zero_grad()


def to_a_flat_minimum():
    net = model()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    for batch in data:
        moves = []
        for turn in range(2):
            loss_of(net, batch).backward()
            if turn == 0:
                for parameter in net.parameters():
                    moves.append(parameter.grad * 0.1)
                    parameter.data.add_(moves[-1])
                optimizer.zero_grad()
        for parameter, move in zip(net.parameters(), moves):
            parameter.data.sub_(move)
        optimizer.step()
        optimizer.zero_grad()


def tasks_without_conflict():
    net = model()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    for batch in data:
        found = []
        for task in (1.0, -2.0):
            optimizer.zero_grad()
            loss_of(net, batch + task).backward()
            found.append([parameter.grad.clone() for parameter in net.parameters()])
        for parameter, one, other in zip(net.parameters(), *found):
            parameter.grad = one + other
        optimizer.step()


def by_hand():
    net = model()
    for batch in data:
        loss_of(net, batch).backward()
        with torch.no_grad():
            for parameter in net.parameters():
                parameter -= 0.01 * parameter.grad
                parameter.grad = None


def gradients_of_ones_own():
    net = model()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    for batch in data:
        optimizer.zero_grad()
        loss_of(net, batch).backward()
        optimizer.step()
        other = loss_of(net.module, torch.ones(8, 6))
        for parameter, gradient in zip(net.parameters(), torch.autograd.grad(other, net.module.parameters())):
            parameter.grad = gradient
        optimizer.step()


def timed():
    net = model()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.0)
    for batch in data[:3]:
        optimizer.zero_grad()
        loss_of(net, batch).backward()
        optimizer.step()
    for _ in range(50):
        optimizer.step()


def in_the_backward():
    net = nn.Sequential(nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 1))
    net = DistributedDataParallel(net)
    optimizers = {parameter: torch.optim.SGD([parameter], lr=0.01) for parameter in net.parameters()}
    for batch in data:
        loss_of(net, batch).backward()
        for parameter, optimizer in optimizers.items():
            optimizer.step()
            optimizer.zero_grad()


infinite_steps_are_left_out()
adversaries()
with_a_closure()
accumulated()
two_optimizers()
warmed_up()
to_a_flat_minimum()
tasks_without_conflict()
by_hand()
gradients_of_ones_own()
timed()
in_the_backward()
dist.destroy_process_group()
"""


def test_right_programs_that_step_on_no_reduction_or_twice(tmp_path, forks):
    """Skipped steps, adversaries, closures, sharper looks, several tasks, steps by hand, and what is timed."""
    ran = run(tmp_path, "--nproc-per-node", "2", script(tmp_path, RIGHT, head=HEAD), forks=forks)
    told = [f for f in ran.document["findings"] if f["check"] == "reducer-coverage"]
    assert [(f["where"], f["message"]) for f in told] == [], ran.err
    assert ran.code == 0, ran.err
