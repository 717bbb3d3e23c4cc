"""Programs whose parameters lie in parts on the ranks end as under torchrun, and the report says what was left out."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch.distributed.fsdp
from running import run, script

PROGRAMS = Path(__file__).parents[2] / "fixtures" / "cases" / "run"
COMPARED = ("initial-broadcast", "gradient-sync", "parameter-sync")


@pytest.mark.parametrize(("name", "ranks", "printed", "told", "compared"), [
    ("dtensor_optimizer", 1, "fine", "no process group of two ranks or more", "not-checked"),
    ("fsdp1", 2, "done", "FSDP over 2 ranks, 6 parameters in flat parameters", "not-checked"),
    ("fsdp2", 2, "done", "FSDP2 over 2 ranks: 6 parameters sharded", "not-checked"),
    ("tensor_parallel", 2, "done", "3 parameters sharded, 1 parameter replicated", "held"),
])  # fmt: skip
@pytest.mark.few(1)
def test_a_program_of_shards_is_unharmed(
    tmp_path: Path, forks: Any, name: str, ranks: int, printed: str, told: str, compared: str
) -> None:
    """It ends well, nothing is held of what nobody has compared, and nobody is accused."""
    if not hasattr(torch.distributed.fsdp, "fully_shard"):
        pytest.skip("DTensor and FSDP2 have their public names from torch 2.6 on")
    ran = run(tmp_path, "--nproc-per-node", str(ranks), PROGRAMS / f"{name}.py", forks=forks)
    document = ran.document
    assert document is not None, ran.err
    assert ran.out.startswith(printed), ran.err
    assert document["verdict"] in ("held", "nothing-checked"), ran.err
    assert ran.code == (0 if document["verdict"] == "held" else 3)
    assert (document["findings"], document["internal"]) == ([], [])
    assert {document["checks"][check]["status"] for check in COMPARED} == {compared}
    assert told in " ".join(ran.err.split())


CAPTURED = """
from ddpcheck.probes.digests import fast_digests as quick, readable_memory as readable
from ddpcheck.probes.randomness import random_draws as streams

captured = [False]
torch.cuda.is_initialized = lambda: captured[0]
torch.cuda.is_current_stream_capturing = lambda: captured[0]


def guarded(function):
    def guard(*args, **kwargs):
        assert not captured[0], f"{function.__name__} looks at a tensor during a capture"
        return function(*args, **kwargs)

    return guard


for owner, name in ((quick, "digests"), (readable, "memory"), (readable, "unseen"), (streams, "of_torch")):
    setattr(owner, name, guarded(getattr(owner, name)))

model, optimizer = setup()
step(model, optimizer)
captured[0] = True
step(model, optimizer)
model.eval()
with torch.no_grad():
    model(torch.randn(8, 4))
captured[0] = False
model.train()
step(model, optimizer)
dist.destroy_process_group()
"""


def test_a_step_that_is_captured_is_not_looked_at(tmp_path: Path, forks: Any) -> None:
    """A stand-in for a capture: no probe touches a tensor or a generator, and the report says that one was made."""
    ran = run(tmp_path, "--nproc-per-node", "2", script(tmp_path, CAPTURED), forks=forks)
    assert ran.code == 0, ran.err
    assert ran.document is not None
    assert ran.document["internal"] == [], ran.err
    assert ran.document["checks"]["gradient-sync"] == {
        "status": "held",
        "checked": 2,
        "coverage": {"compared": 2, "of": 2, "unit": "windows"},
        "skipped_because": None,
    }
    assert "A CUDA graph was captured on ranks 0 and 1" in ran.err
