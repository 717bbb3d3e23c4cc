"""Tensors that we refer to can be swapped, as torch does where a program has asked for it, and are known afterwards."""

from __future__ import annotations

import gc
import sys
import weakref
from pathlib import Path

import pytest
import torch

from ddpcheck.probes.recording import tensor_references
from ddpcheck.probes.recording.tensor_references import reference
from tests import progress

PROGRAM = """
import sys, tempfile
from pathlib import Path
if "watched" in sys.argv:
    from ddpcheck.probes import all_probes
    all_probes.start(Path.cwd(), 1 << 28)
import torch, torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

torch.__future__.set_swap_module_params_on_conversion(True)
dist.init_process_group("gloo", init_method=f"file://{tempfile.mkdtemp()}/store", rank=0, world_size=1)
torch.manual_seed(0)
net = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Linear(4, 1))
first, parameters = net[0].weight, list(net.parameters())
model = DistributedDataParallel(net)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
model(torch.ones(2, 4)).sum().backward()
optimizer.step()
model.zero_grad()
state = {name: value.double() + 1 for name, value in net.state_dict().items()}
del model
net.double()
net.load_state_dict(state)
assert net[0].weight is first and first.dtype == torch.float64
again = DistributedDataParallel(net)
again(torch.ones(2, 4).double()).sum().backward()
optimizer.step()
print([float(p.sum()) for p in net.parameters()])
if "watched" in sys.argv:
    from ddpcheck.probes.ddp import parameter_names
    from ddpcheck.probes.ddp.wrapper_usage import WRAPPERS
    from ddpcheck.probes.optimizers import steps
    for parameter in parameters:
        name, wrapper, late = WRAPPERS.owner(parameter)
        assert parameter_names.name_of(parameter) == ("Linear." + name.partition(".")[2], True), name
        assert parameter_names.line_of(parameter) != 0 and not late and wrapper.number == 1
        assert WRAPPERS.is_reduced(parameter)
    assert steps.have_been_stepped(parameters) and steps.are_stepped(parameters)
    assert steps.steps_of(optimizer) == 2
dist.destroy_process_group()
"""


def test_a_program_that_swaps_runs_as_without_us(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(PROGRAM)
    said = []
    for how in ("plain", "watched"):
        command = [sys.executable, "program.py", how]
        run = progress.run(command, cwd=tmp_path, text=True)
        assert run.returncode == 0, run.stderr
        said.append(run.stdout)
    assert said[0] == said[1]


@pytest.fixture
def watched(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.utils, "swap_tensors", torch.utils.swap_tensors)
    tensor_references.watch()


def test_tensors_are_swapped(watched: None) -> None:
    """Each stays what it is known as; also where torch refuses."""
    one, two = torch.nn.Parameter(torch.ones(2)), torch.nn.Parameter(torch.zeros(3))
    known, other = reference(one), reference(two)
    assert known is reference(one)
    torch.utils.swap_tensors(one, two)
    assert known() is one
    assert other() is two
    assert one.shape == (3,)
    assert len(weakref.getweakrefs(one)) == 1
    keeping = weakref.ref(one)
    with pytest.raises(RuntimeError, match="weakref"):
        torch.utils.swap_tensors(t1=one, t2=two)
    assert known() is one is keeping()


def test_a_tensor_is_not_kept_alive(watched: None) -> None:
    one, gone = torch.ones(2), []
    known = reference(one)
    known.when_gone(lambda: gone.append(1))
    reference(one).when_gone(lambda: gone.append(2))
    torch.utils.swap_tensors(one, torch.zeros(3))
    del one
    gc.collect()
    assert known() is None
    assert gone == [1, 2]
    assert known not in tensor_references._all.values()
