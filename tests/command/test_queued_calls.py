"""Collectives that are only queued, from the script to the report: gloo, and a device beside the program.

What NCCL and a GPU are to the program: a call returns at once, an event is over when all before it is done, and who
asks for a number waits for that.
"""

from __future__ import annotations

import pytest
from running import run, script

DEVICE = """
import queue, sys, threading, time
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from ddpcheck.probes.collectives import every_call, one_call
from ddpcheck.probes.devices import device_events, queued_calls
from ddpcheck.probes.recording import patching

todo = queue.SimpleQueue()
Work = torch._C._distributed_c10d.Work
in_order = Work.wait.__wrapped__


def work():
    while True:
        task = todo.get()
        try:
            task()
        except RuntimeError:  # other ranks have called something else: NCCL waits for ever
            threading.Event().wait()


class Event:
    stream = 0, 0

    def __init__(self, device=None):
        self.passed = threading.Event()
        todo.put(self.passed.set)

    def is_over(self):
        return self.passed.is_set()

    def is_ahead(self):
        return not self.is_over()

    def release(self):
        pass


class Number:
    \"\"\"A number on the device: its ``item()`` is a function in C that waits.\"\"\"

    def __init__(self):
        done = threading.Lock()
        done.acquire()
        todo.put(done.release)
        self.item = done.acquire


def callers(frame):
    while frame is not None:
        yield frame.f_code.co_name
        frame = frame.f_back


def wait(self, *args, **kwargs):
    if "barrier" not in callers(sys._getframe(1)):
        todo.put(lambda: in_order(self))
        return True
    Number().item()
    return in_order(self)


# Below the probe, as NCCL's is.
Work.wait = patching.shielded_around(wait, every_call._around_wait, one_call.is_within)
every_call._waits.append(Work.wait)
device_events.record = Event
queued_calls.device_of = lambda exchange: 0 if exchange.op in ("all_reduce", "all_gather") else None
threading.Thread(target=work, daemon=True).start()
dist.init_process_group("gloo")
rank = dist.get_rank()
model = DistributedDataParallel(torch.nn.Linear(4, 1))
x = torch.ones(4)
"""
END = """
Number().item()
dist.barrier()
dist.destroy_process_group()
"""


def test_a_hang_in_item_is_certain(tmp_path, forks):
    """Neither host is in a collective: their devices are, and each host waits for its own."""
    program = """
dist.all_reduce(x)
if rank == 0:
    dist.all_reduce(x)
    loss = Number()
    print(loss.item())  # the host of rank 0
else:
    dist.all_gather([torch.ones(4), torch.ones(4)], x)
    loss = Number()
    print(loss.item())  # the host of rank 1
"""
    ran = run(tmp_path, "--nproc-per-node", "2", script(tmp_path, DEVICE + program + END), forks=forks)
    assert ran.document["verdict"] == "hung"
    (finding,) = [one for one in ran.document["findings"] if one["check"] == "no-hang"]
    assert "rank 0's device waits in all_reduce(float32 x 4 sum), call " in finding["found"]
    assert "its host stands at train.py:" in finding["found"]
    assert "(`print(loss.item())`)" in finding["found"]
    assert "Here their calls diverge" in finding["found"]
    assert [stand["on_device"] for stand in ran.document["hang"]["stands"]] == [True, True]
    assert "its device waits in" in ran.err


def test_a_host_that_sleeps_while_its_device_waits_is_waited_for(tmp_path, forks):
    """It comes on later, and with it the other one."""
    program = """
dist.all_reduce(x)
if rank == 0:
    dist.all_reduce(x)
    time.sleep(9)
else:
    time.sleep(7)
    dist.all_reduce(x)
dist.all_reduce(x)
"""
    ran = run(tmp_path, "--nproc-per-node", "2", script(tmp_path, DEVICE + program + END), forks=forks)
    assert ran.found == []
    assert ran.code == 0


SAVED = """
state = {"net": torch.ones(3)}
if rank == 0:
    torch.save(state, "last.pt")
dist.barrier()
if rank == 0:
    time.sleep(2)
    torch.save(state, "last.pt")
dist.all_reduce(x)
"""


@pytest.mark.parametrize("between", ["", "Number().item()", "dist.barrier()"])
def test_a_queued_call_keeps_a_load_apart_from_a_save_only_where_the_host_waits(tmp_path, forks, between):
    """Where the load was seen to begin before the device of its rank was done, it is a race."""
    program = f"{SAVED}\n{between}\nif rank == 1:\n    torch.load('last.pt')\n"
    checks = ("--checks", "checkpoint-read-after-write")
    ran = run(tmp_path, *checks, "--nproc-per-node", "2", script(tmp_path, DEVICE + program + END), forks=forks)
    assert ran.found == ([] if between else ["checkpoint-read-after-write"])
    assert between or "only queued" in ran.document["findings"][0]["cause"]
