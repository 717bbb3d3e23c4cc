"""Claim 6 (S0): constructor, forward and backward are synchronisation points.

Every rank has to come to each of them, equally often and in the same order;
who leaves one out is waited for until a timeout.
"""

from __future__ import annotations

import pytest

SCRIPT = """
dist.init_process_group("gloo")
torch.manual_seed(1)
short = rank == 1 and {fault}


def build():
    return nn.Sequential(nn.Linear(4, 2), nn.BatchNorm1d(2))  # with buffers, which a forward pass broadcasts


if not (short and {point!r} == "constructor"):
    model = DistributedDataParallel(build())  # the constructor
else:
    model = build()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for number in range(3):
    inputs = torch.randn(8, 4)
    if short and number == 2 and {point!r} == "step":
        break
    if short and number == 2 and {point!r} == "forward":
        loss = model.module(inputs).square().mean()
    else:
        loss = model(inputs).square().mean()  # the forward
    optimizer.zero_grad()
    if not (short and number == 2 and {point!r} == "backward"):
        loss.backward()  # the backward
    optimizer.step()
dist.barrier()  # the end
"""

POINTS = {
    "constructor": "# the constructor",
    "forward": "# the forward",
    "backward": "# the backward",
    "step": "# the forward",
}
"""What rank 1 leaves out, and the line at which rank 0 then waits."""


@pytest.mark.parametrize("point", POINTS)
@pytest.mark.few(1)
def test_rank_that_leaves_one_out_is_named(watch, point):
    """A rank short of a constructor, a forward, a backward or a whole step is told, with the line where it parted."""
    seen = watch(SCRIPT.format(fault=True, point=point))

    assert not seen.ended_well
    (finding,) = [f for f in seen.findings if f["check"] in ("collective-order", "no-hang")]
    assert finding["severity"] == "error"
    lines = [seen.line(finding), *(seen.line({"where": where}) for _, where in finding["proof"])]
    assert any(line.endswith(POINTS[point]) for line in lines), lines
    assert 1 in finding["ranks"] or "rank 1" in finding["found"]


def test_same_number_and_order_is_held(watch):
    """The twin: where rank 1 leaves nothing out, every call is matched, and the run ends."""
    seen = watch(SCRIPT.format(fault=False, point="step"))

    assert seen.ended_well
    assert seen.errors == []
    assert seen.said["checked"]["collective-order"]


@pytest.mark.long
def test_in_a_test_the_deadline_tells_every_ranks_stack(project):
    """A test with a rank that is a step short ends at its deadline, and shows where each rank stands."""
    project.write(
        "test_it.py",
        """
        import pytest, torch, threading
        from torch import nn

        @pytest.mark.ddp(world_size=2, timeout=1.0)
        def test_short(ddp):
            model = ddp.wrap(nn.Linear(4, 2))
            for number in range(3):
                if ddp.rank == 1 and number == 2:
                    threading.Event().wait()  # busy elsewhere
                model(torch.randn(8, 4)).sum().backward()  # the others wait here
        """,
    )
    ran = project.run()
    seen = ran["test_short"]
    assert seen.outcome == "failed"
    assert "timed out" in seen.text
    lines = (project.folder / "test_it.py").read_text().splitlines()
    for mark in ("# busy elsewhere", "# the others wait here"):
        number = next(n for n, line in enumerate(lines, 1) if line.endswith(mark))
        assert f"test_it.py:{number}" in seen.text or f'test_it.py", line {number}' in seen.text
