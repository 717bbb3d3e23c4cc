"""What is put on record of saves and loads: in two ranks that shard a model, and in two that save in threads."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from ddpcheck import evidence as ev
from ddpcheck.facts.states import reads, saves, whole
from tests.torch_names import skip_without

SHARDED = """
    import os
    import torch
    import torch.distributed as dist
    import torch.distributed.checkpoint as dcp
    from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
    from torch.distributed.fsdp import fully_shard

    dist.init_process_group("gloo")
    here = os.environ["SCRATCH"]
    torch.manual_seed(3)
    model = torch.nn.Sequential(torch.nn.Linear(5, 7), torch.nn.Linear(7, 2))
    fully_shard(model)
    adam = torch.optim.AdamW(model.parameters(), lr=0.1)

    class App:
        def state_dict(self):
            return {"epoch": 3, "text": "x"}

        def load_state_dict(self, state):
            pass

    def step():
        model(torch.ones(2, 5)).sum().backward()
        adam.step()
        adam.zero_grad()

    def state():
        weights, moments = get_state_dict(model, adam)
        return {"model": weights, "adam": moments, "app": App(), "random": torch.get_rng_state()}

    get_state_dict(model, adam)
    step()
    dcp.save(state(), checkpoint_id=f"{here}/now")
    for_saves = dist.new_group()
    later = dcp.async_save(state(), checkpoint_id=f"{here}/later", process_group=for_saves)
    step()
    later.result()
    mine = {name: p.detach().to_local() for name, p in model.named_parameters()}
    torch.save({"mine": mine, "adam": adam.state_dict()}, f"{here}/{dist.get_rank()}.pt")
    step()
    loaded = state()
    dcp.load(loaded, checkpoint_id=f"{here}/now")
    set_state_dict(model, adam, model_state_dict=loaded["model"], optim_state_dict=loaded["adam"])
    step()
    dist.destroy_process_group()
"""

THREADS = """
    import io, os, threading
    import torch
    import torch.distributed as dist

    dist.init_process_group("gloo")
    here = f"{os.environ['SCRATCH']}/{dist.get_rank()}"
    os.mkdir(here)
    model = torch.nn.Linear(3, 2)
    model.register_buffer("mean", torch.arange(3.0))
    model.register_buffer("spread", torch.arange(3.0) + 5)
    sgd = torch.optim.SGD(model.parameters(), lr=0.1)

    class Slow:
        def __getstate__(self):
            began.set()
            stepped.wait()
            return {}

    def step():
        model(torch.ones(1, 3)).sum().backward()
        sgd.step()

    step()
    began, stepped = threading.Event(), threading.Event()
    state = {"slow": Slow(), **model.state_dict()}
    thread = threading.Thread(target=torch.save, args=(state, f"{here}/live.pt"))
    thread.start()
    began.wait()
    step()
    stepped.set()
    thread.join()
    copies = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    torch.save({**copies, "mean": copies["spread"], "numbers": list(range(40))}, f"{here}/copies.pt")
    torch.save(model.state_dict(), io.BytesIO())
    torch.save(model.weight.detach(), f"{here}/tensor.pt")
    model.load_state_dict(copies)
    dist.destroy_process_group()
"""


DRIVER = """
import pickle, sys
from pathlib import Path
from ddpcheck.probes import all_probes
from tests.corpus.forked import run
all_probes.patch()
ran = run(Path(sys.argv[1]))
assert (set(ran.exits.values()), ran.defects) == ({0}, []), (ran.output, ran.defects)
Path(sys.argv[2]).write_bytes(pickle.dumps(ran.worlds[0]))
"""


def ran(script, tmp_path):
    """The world of two ranks of a script, in a process of their own: what is patched stays patched."""
    skip_without(textwrap.dedent(script))
    program, result = tmp_path / "train.py", tmp_path / "world"
    program.write_text(textwrap.dedent(script))
    env = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[3])}
    command = [sys.executable, "-c", DRIVER, str(program), str(result)]
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return pickle.loads(result.read_bytes())


@pytest.fixture(scope="module")
def sharded(tmp_path_factory):
    return ran(SHARDED, tmp_path_factory.mktemp("sharded"))


@pytest.fixture(scope="module")
def threads(tmp_path_factory):
    return ran(THREADS, tmp_path_factory.mktemp("threads"))


def entries(state):
    return {one.entry.name: one for one in state.pieces}


def test_each_save_once(sharded):
    """The thread that writes an asynchronous one goes through the same function as a save."""
    for rank in sharded:
        mine = [one.record for one in saves(sharded) if one.rank is rank]
        assert [one.how for one in mine] == ["dcp.save", "dcp.async_save", "torch.save"]
        assert [one.ranks for one in mine] == [(0, 1), (0, 1), ()]
        written = rank.of(ev.StateWritten)
        assert [(one.save, one.changed, one.staged) for one in written] == [
            (mine[0].save, [], False),
            (mine[1].save, [], True),
            (mine[1].save, [], False),
            (mine[2].save, [], False),
        ]


def test_when_a_load_begins(sharded):
    """The save to that place is over."""
    for rank in sharded:
        (began,) = rank.of(ev.LoadBegan)
        (read,) = (one.record for one in reads(sharded) if one.rank is rank and one.record.how == "dcp.load")
        assert read.made == 1
        assert began.path == read.path
        assert max(one.n for one in rank.of(ev.StateWritten)) < began.n < read.n


def test_what_the_entries_are(sharded):
    saved = {one.record.how: entries(one) for one in saves(sharded) if one.rank.rank == 0}
    weight = saved["dcp.save"]["model.0.weight"].entry
    assert (weight.role, weight.of, weight.live) == ("parameter", "0.weight", True)
    assert (weight.kind, weight.layout.shape, weight.layout.offset) == ("float32[4, 5]", (7, 5), (0, 0))
    moment = saved["dcp.save"]["adam.state.0.weight.exp_avg"].entry
    assert (moment.role, moment.of, moment.key, moment.layout.shape) == ("moment", "0.weight", "exp_avg", (7, 5))
    assert saved["dcp.save"]["random"].entry.role == "random"
    assert saved["dcp.save"]["app.epoch"].entry.kind == "int"
    # as a plain tensor in the memory of one that is a part
    local = saved["torch.save"]["mine.0.weight"].entry
    assert (local.of, local.layout) == ("0.weight", weight.layout)


def test_what_came_back(sharded):
    """The state dict, the module and the optimizer, with the elements that were saved."""
    assert [one.record.how for one in reads(sharded) if one.rank.rank == 0] == ["dcp.load", "module", "optimizer"]
    before = [entries(one) for one in saves(sharded) if one.record.how == "dcp.save"]
    names = {"dcp.load": "model.0.weight", "module": "0.weight"}
    wanted = whole([one["model.0.weight"] for one in before])
    assert wanted is not None
    for how, name in names.items():
        found = whole([entries(one)[name] for one in reads(sharded) if one.record.how == how])
        assert found is not None
        assert found.is_same(wanted)
    moments = [entries(one)["0.weight exp_avg"] for one in reads(sharded) if one.record.how == "optimizer"]
    found, wanted = whole(moments), whole([one["adam.state.0.weight.exp_avg"] for one in before])
    assert found is not None
    assert found.is_same(wanted)


def test_a_step_for_the_sake_of_a_state(sharded):
    for rank in sharded:
        (asked,) = rank.of(ev.StateAsked)
        assert (asked.how, asked.kind) == ("get_state_dict", "AdamW")
        assert "step" in asked.changed


def test_what_changes_while_it_is_written(threads):
    rank = threads.ranks[0]
    live, copies = (one for one in saves(threads) if one.rank is rank)
    first, second = rank.of(ev.StateWritten)
    names = [live.form.entries[place].name for place in first.changed]
    assert (names, second.changed) == (["weight", "bias"], [])
    assert live.record.thread
    assert not copies.record.thread


def test_a_tensor_under_anothers_name(threads):
    live, copies = (one for one in saves(threads) if one.rank.rank == 1)
    names = [entry.name for entry in copies.form.entries]
    assert (live.record.mistaken, [(names[a], names[b]) for a, b in copies.record.mistaken]) == (
        [],
        [("mean", "spread")],
    )
    entry = entries(copies)["weight"].entry
    assert (entry.role, entry.of, entry.live) == ("parameter", "weight", False)
    assert entries(copies)["numbers"].seen
