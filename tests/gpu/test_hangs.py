"""Ranks that hang where NCCL's calls have long returned: in what waits for the device.

Needs one GPU and NCCL 2.30 or newer, or two GPUs.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.gpu.watched_scripts import line_of, watch

STALL = 20
"""Seconds without progress that the command is told to bear."""

SOON = 150.0
"""Seconds, with the start of two ranks and of NCCL: its own watchdog takes ten minutes."""

LATE = """
model, optimizer = setup()
for _ in range(3): step(model, optimizer)
total = torch.ones(1, device=device)
if rank == 1:
    time.sleep(3600)  # LATE
dist.all_reduce(total)  # CALLED
{wait}  # WAITS
"""

# Calls of two communicators, so that neither ever has what it waits for, whatever NCCL makes of its first bytes.
OTHER_GROUP = """
second = dist.new_group([0, 1])
model, optimizer = setup()
for _ in range(3): step(model, optimizer)
total = torch.ones(1024, device=device)
dist.all_reduce(total)
dist.all_reduce(total, group=second)
torch.cuda.synchronize()
if rank == 0:
    dist.all_reduce(total)  # CALLED
else:
    dist.all_reduce(total, group=second)  # LATE
torch.cuda.synchronize()  # WAITS
dist.barrier()
"""

DIFFERENT = """
model, optimizer = setup()
for _ in range(3): step(model, optimizer)
total = torch.ones(1024, device=device)
if rank == 0:
    dist.all_reduce(total)  # CALLED
else:
    dist.all_gather([torch.empty_like(total) for _ in range(2)], total)  # LATE
torch.cuda.synchronize()  # WAITS
dist.barrier()
"""


ASYNCHRONOUS = {
    "work": "work = dist.all_reduce(total, async_op=True); work.wait()",
    "batch": "[work.wait() for work in dist.batch_isend_irecv(pair())]",
    "functional": "total = funcol.all_reduce(total, 'sum', dist.group.WORLD) + 1",
    "not-waited-for": "work = dist.all_reduce(total, async_op=True)",
}

WAITED_FOR = """
import torch.distributed._functional_collectives as funcol
total, received = torch.ones(4, device=device), torch.empty(4, device=device)
def pair():
    return [dist.P2POp(dist.isend, total, 1 - rank), dist.P2POp(dist.irecv, received, 1 - rank)]
model, optimizer = setup()
for _ in range(3): step(model, optimizer)
if rank == 1:
    time.sleep(3600)  # LATE
{call}  # CALLED
torch.cuda.synchronize()  # WAITS
"""


def lines_of_ranks(document: dict[str, Any]) -> set[int]:
    """All lines of the script that the report leads to, wherever it has them."""
    found: set[int] = set()

    def collect(value: Any) -> None:
        if isinstance(value, dict):
            if value.get("file") == "train.py":
                found.add(value["line"])
            for one in value.values():
                collect(one)
        elif isinstance(value, list):
            for one in value:
                collect(one)

    collect(document["findings"])
    collect(document["hang"])
    return found


def hung(tmp_path: Path, body: str) -> dict[str, Any]:
    """Run it, and see that it was ended as a hang, soon, with nothing left."""
    ran = watch(tmp_path, body, "nccl", stall=STALL)
    assert (ran.code, ran.document["verdict"]) == (1, "hung"), ran.printed
    assert ran.seconds < SOON, ran.printed
    assert ran.left == ()
    assert ran.document["internal"] == []
    return ran.document


@pytest.mark.gpu(real="calls that return before the device is done with them")
@pytest.mark.parametrize("wait", ["total.item()", "torch.cuda.synchronize()"])
def test_a_rank_that_waits_for_the_device(tmp_path: Path, wait: str) -> None:
    """It is told where each rank is: who waits, in which collective or where for it, and who did not come."""
    document = hung(tmp_path, LATE.format(wait=wait))
    script = tmp_path / "train.py"
    lines = lines_of_ranks(document)
    assert lines & {line_of(script, "CALLED"), line_of(script, "WAITS")}, json.dumps(document["findings"], indent=1)
    assert line_of(script, "LATE") in lines, json.dumps(document["findings"], indent=1)
    assert {"no-hang", "collective-order"} & {finding["check"] for finding in document["findings"]}


@pytest.mark.gpu(real="calls that return before the device is done with them")
@pytest.mark.parametrize("how", sorted(ASYNCHRONOUS))
def test_an_asynchronous_call(tmp_path: Path, how: str) -> None:
    """One that the program waits for is named, and who did not come; where none is waited for, that is the cause."""
    document = hung(tmp_path, WAITED_FOR.format(call=ASYNCHRONOUS[how]))
    script = tmp_path / "train.py"
    lines = lines_of_ranks(document)
    assert {line_of(script, "LATE"), line_of(script, "WAITS")} <= lines, json.dumps(document["findings"], indent=1)
    if how == "not-waited-for":
        assert "that was not waited for" in json.dumps(document["findings"])
    else:
        assert line_of(script, "CALLED") in lines, json.dumps(document["findings"], indent=1)


@pytest.mark.gpu(real="calls that return before the device is done with them")
def test_calls_of_two_groups(tmp_path: Path) -> None:
    """Each rank waits in another group for the other one: told with the line of each."""
    document = hung(tmp_path, OTHER_GROUP)
    assert {"no-hang", "collective-order"} & {finding["check"] for finding in document["findings"]}
    script = tmp_path / "train.py"
    lines = lines_of_ranks(document)
    assert lines & {line_of(script, "CALLED"), line_of(script, "LATE"), line_of(script, "WAITS")}


@pytest.mark.gpu(real="calls that return before the device is done with them")
def test_different_collectives(tmp_path: Path) -> None:
    """The place where the ranks part is told, with the line of each; NCCL may hang there, or refuse, or go on."""
    ran = watch(tmp_path, DIFFERENT, "nccl", stall=STALL)
    assert (ran.code, ran.document["internal"], ran.left) == (1, [], ()), ran.printed
    assert ran.seconds < SOON, ran.printed
    assert "collective-order" in {
        check for finding in ran.document["findings"] for check in (finding["check"], *finding["also"])
    }
    script = tmp_path / "train.py"
    assert {line_of(script, "CALLED"), line_of(script, "LATE")} <= lines_of_ranks(ran.document)
