"""CUDA graphs under ``ddpcheck run``: what is captured computes what it would without a capture, and no graph less.

Needs one GPU and NCCL 2.30 or newer, or two GPUs.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.gpu.watched_scripts import alone, said, watch

CAPTURED = """
stream = torch.cuda.Stream()

def trained(captured):
    torch.manual_seed(1)
    layers = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 2)).to(device)
    inputs = [torch.randn(4, 8, generator=torch.Generator().manual_seed(100 * n + rank)).to(device) for n in range(20)]
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        model = DistributedDataParallel(layers, device_ids=[device.index])
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        given = torch.zeros(4, 8, device=device)

        def whole():
            optimizer.zero_grad(set_to_none=True)
            model(given).square().mean().backward()
            optimizer.step()

        # DDP has to have seen eleven of them before it can be captured.
        for x in inputs[:12]:
            given.copy_(x)
            whole()
    torch.cuda.current_stream().wait_stream(stream)
    torch.cuda.synchronize()
    if captured:
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=stream):
            whole()
        again = graph.replay
    else:
        again = whole
    for x in inputs[12:]:
        given.copy_(x)
        again()
    torch.cuda.synchronize()
    return [p.detach().cpu().clone() for p in layers.parameters()]

for one, other in zip(trained(False), trained(True), strict=True):
    torch.testing.assert_close(one, other)
    assert one.isfinite().all()
if rank == 0: print("equal=yes", flush=True)
"""

COMPILED = """
import torch._dynamo
import torch.cuda.graphs as graphs

captures = 0
begin = graphs.CUDAGraph.capture_begin

def counted(self, *args, **kwargs):
    global captures
    captures += 1
    return begin(self, *args, **kwargs)

graphs.CUDAGraph.capture_begin = counted
layers = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 2)).to(device)
model = DistributedDataParallel(torch.compile(layers, mode="reduce-overhead"), device_ids=[device.index])
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(8):
    torch.compiler.cudagraph_mark_step_begin()
    optimizer.zero_grad()
    model(torch.randn(4, 8, device=device)).square().mean().backward()
    optimizer.step()
torch.cuda.synchronize()
seen = torch._dynamo.utils.counters
skips = seen["inductor"]["cudagraph_skips"]
if rank == 0:
    print(f"graphs={captures} skips={skips} breaks={sum(seen['graph_break'].values())}", flush=True)
"""

# NCCL's watchdog asks for events of other threads, which a capture of an older torch does not survive.
QUIET = {"TORCH_NCCL_ASYNC_ERROR_HANDLING": "0", "TORCH_NCCL_ENABLE_MONITORING": "0"}


@pytest.mark.gpu(real="CUDA graphs")
def test_ddp_in_a_graph_equals_eager(tmp_path: Path) -> None:
    """Steps that are replayed end with the weights of steps that are not; the report says that they were not seen."""
    alone(tmp_path, CAPTURED, "nccl", QUIET)
    ran = watch(tmp_path, CAPTURED, "nccl", environment=QUIET)
    assert said(ran.printed, "equal") == ["yes"], ran.printed
    assert (ran.code, ran.document["internal"], ran.document["findings"]) == (0, [], []), ran.printed
    assert "A CUDA graph was captured" in " ".join(ran.document["notes"])


@pytest.mark.gpu(real="CUDA graphs, and what a compiler makes for a GPU")
def test_reduce_overhead_has_as_many_graphs(tmp_path: Path) -> None:
    """torch.compile captures as often as under torchrun, and breaks and skips no graph more."""
    without = said(alone(tmp_path, COMPILED, "nccl"), "graphs")
    ran = watch(tmp_path, COMPILED, "nccl")
    assert (ran.code, ran.document["internal"]) == (0, []), ran.printed
    assert said(ran.printed, "graphs") == without
    assert not without[0].startswith("0 "), "nothing was captured, so this has shown nothing"
