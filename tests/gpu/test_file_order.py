"""Which calls order the ranks' work on files: under NCCL an all_reduce orders devices, and no hosts.

Needs one GPU and NCCL 2.30 or newer, or two GPUs.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.gpu.watched_scripts import watch

# The race is lost on purpose: who saves comes late to the call, who loads does so as soon as the call returns.
BODY = """
model, optimizer = setup()
step(model, optimizer)
if rank == 0:
    torch.save(net.state_dict(), "model.tmp")
    os.replace("model.tmp", "model.pt")
dist.barrier()
if rank == 0:
    time.sleep(2)
    torch.save(net.state_dict(), "model.tmp")
    os.replace("model.tmp", "model.pt")  # SAVED
{meeting}
net.load_state_dict(torch.load("model.pt", weights_only=True, map_location=device))
step(model, optimizer)
"""

ALL_REDUCE = "total = torch.zeros(1, device=device); dist.all_reduce(total)"
MEETINGS = {
    "barrier": "dist.barrier()",
    "object": "dist.broadcast_object_list([None])",
    "all-reduce-and-item": f"{ALL_REDUCE}; total.item()",
}


def found(document: dict[str, Any]) -> list[str]:
    return [finding["check"] for finding in document["findings"] if finding["check"].startswith("checkpoint")]


@pytest.mark.gpu(real="calls that return before the device is done with them")
def test_an_all_reduce_orders_no_hosts(tmp_path: Path) -> None:
    """Rank 1 loads what was there before: told with the check that says so."""
    ran = watch(tmp_path, BODY.format(meeting=ALL_REDUCE), "nccl")
    assert found(ran.document) == ["checkpoint-read-after-write"], ran.printed
    assert ran.code == 1
    assert ran.document["internal"] == []


@pytest.mark.gpu
@pytest.mark.parametrize("meeting", sorted(MEETINGS))
def test_what_orders_hosts(tmp_path: Path, meeting: str, simulated: bool) -> None:
    """A barrier, a collective of objects, and a wait for the device after an all_reduce: no race."""
    ran = watch(tmp_path, BODY.format(meeting=MEETINGS[meeting]), "gloo" if simulated else "nccl", simulated)
    assert found(ran.document) == [], ran.printed
    assert (ran.code, ran.document["internal"]) == (0, []), ran.printed


@pytest.mark.gpu
def test_an_all_reduce_of_gloo_orders_hosts(tmp_path: Path, simulated: bool) -> None:
    """The same script where the call returns when all have come."""
    ran = watch(tmp_path, BODY.format(meeting=ALL_REDUCE), "gloo", simulated)
    assert found(ran.document) == [], ran.printed
    assert (ran.code, ran.document["internal"]) == (0, []), ran.printed
