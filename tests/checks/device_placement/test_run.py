"""The judge of device-placement, over evidence written by hand."""

from __future__ import annotations

import math

import pytest
from msgspec.structs import replace

from ddpcheck import evidence as ev
from ddpcheck.checks.device_placement.run import judge
from ddpcheck.judging.world import Process, Rank, Stretch, World
from ddpcheck.vocabulary.model import CallSite
from tests.judging.written import raised, rank, world, wrapped


def ask(over):
    return judge(over)


def at(line):
    return CallSite(file="train.py", line=line, function="main")


def placed(device, name, wrapper=0):
    return ev.Placed, {"wrapper": wrapper, "hardware": {device: name}, "memory": {}}


def test_the_cpu_alone_is_not_checked():
    """There is nothing to misplace, and that is said."""
    assert ask(world(*[[wrapped(3)]] * 2)).skipped_because == "all wrapped modules were on the CPU"
    assert ask(world([], [])).skipped_because == "ddpcheck saw no module in DistributedDataParallel"


@pytest.mark.parametrize(("given", "places", "cause"), [
    ("[0], output_device None", "device(type='cpu')", "the module is on the CPU"),
    # The devices that were given are none that the module lies on.
    ("[device(type='cpu')], output_device device(type='cpu')", "device(type='cpu')", "the module is on the CPU"),
    ("[0], output_device 0", "device(type='cuda', index=0), device(type='cuda', index=1)", "the module lies on"),
    ("[0], output_device 0", "device(type='xpu', index=0)", ""),
])  # fmt: skip
def test_device_ids_that_do_not_fit(given, places, cause):
    """DDP's own error, with what to do."""
    message = (
        "DistributedDataParallel device_ids and output_device arguments only work with single-device/multiple-device "
        f"GPU modules or CPU modules, but got device_ids {given}, and module parameters {{{places}}}."
    )
    judged = ask(world(*[[raised(message, 7)]] * 2))
    (finding,) = judged.findings
    assert (finding.severity, finding.ranks, finding.where, finding.links) == ("error", (0, 1), at(7), ("stop",))
    assert finding.cause.startswith(cause)


@pytest.mark.parametrize(
    ("gpus", "backend", "advice"),
    [
        (False, "gloo", "Leave device_ids and output_device out."),
        (True, "nccl", "Move the module to its GPU first: module.to(device)."),
        (True, "gloo", "Leave device_ids out for a training on the CPU; for one on GPUs move the module"),
    ],
)
def test_the_fix_is_that_of_what_the_run_has(gpus, backend, advice):
    """Only who may have GPUs is told to move the module there."""
    message = "device_ids and output_device … got device_ids [0], and module parameters {device(type='cpu')}"
    one = rank(0, [raised(message, 7)])
    process = Process("p0")
    records = [record for record in one.process.records if not isinstance(record, (ev.Began, ev.Joined))]
    process.add([replace(one.process.began, gpus=gpus), replace(one.joined, backend=backend), *records])
    ranks = [Rank(Stretch(process, process.last(ev.Joined), 0, math.inf)), rank(1, [])]
    (finding,) = ask(World(ranks, 2)).findings
    assert finding.advice.startswith(advice)


def test_the_global_rank_as_an_index():
    """Rank 5 of a second machine asks for GPU 5 of four."""
    records = [raised("CUDA error: invalid device ordinal\nCompile with …", 7)]
    (finding,) = ask(World([rank(5, records, 8, local_rank=1)], 8)).findings
    assert finding.cause.startswith("rank 5 has LOCAL_RANK 1 on its machine")
    (finding,) = ask(World([rank(1, records, 2, local_rank=1)], 2)).findings
    assert finding.cause == ""


def test_two_ranks_on_one_gpu():
    """The same GPU by its own name, on the same machine."""
    records = [wrapped(3, devices=["cuda:0"]), placed("cuda:0", "GPU-a")]
    judged = ask(world(records, records))
    (finding,) = judged.findings
    assert (finding.ranks, finding.where, judged.checked) == ((0, 1), at(3), 2)


def test_a_gpu_of_its_own_under_the_same_number():
    """Each rank sees one GPU, another one, as number 0; and machines have GPUs of their own."""
    ranks = [[wrapped(3, devices=["cuda:0"]), placed("cuda:0", f"GPU-{r}")] for r in range(2)]
    assert ask(world(*ranks)).findings == ()
    over = World([rank(r, [wrapped(3, devices=["cuda:0"]), placed("cuda:0", "")], host=f"h{r}") for r in range(2)], 2)
    assert ask(over).findings == ()
