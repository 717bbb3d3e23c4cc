"""What the probe of collectives writes down: every call once, with what has to be equal, in a bounded room."""

from __future__ import annotations

import json
import sys
import threading
import weakref
from pathlib import Path

import pytest
import torch

from ddpcheck.evidence import Call, Outlived, frame
from ddpcheck.judging.evidence_folder import Folder
from ddpcheck.probes.collectives import call_log, every_call, one_call
from ddpcheck.probes.collectives.exchange import Exchange
from ddpcheck.probes.optimizers import gradient_events
from ddpcheck.probes.processes import main_thread
from ddpcheck.probes.recording import recorder
from ddpcheck.vocabulary.clock import clock
from tests import progress

ROOT = Path(__file__).parents[3]
SITE = 7

SCRIPT = """
import threading, time, warnings
import torch, torch.distributed as dist
import torch.distributed.nn.functional as nn_functional
from torch.nn.parallel import DistributedDataParallel
warnings.simplefilter("ignore")
dist.init_process_group("gloo")
rank = dist.get_rank()
t, pair = torch.ones(4), [torch.ones(4), torch.ones(4)]
dist.all_reduce(t); dist.all_reduce(tensor=t, op=dist.ReduceOp.MAX); dist.all_reduce(torch.ones(2, 1, 3))
dist.broadcast(t, 1); dist.reduce(t, dst=1)
dist.all_gather(pair, t); dist.all_gather_into_tensor(torch.zeros(8), t)
dist.gather(t, pair if rank == 0 else None); dist.scatter(t, pair if rank == 0 else None, src=0)
dist.all_to_all_single(torch.zeros(4), t)
dist.barrier(); dist.monitored_barrier()
if rank == 1:
    time.sleep(0.5)
done, ticks = [], []
def tick():
    while not done:
        ticks.append(time.sleep(0.01))
ticking = threading.Thread(target=tick); ticking.start()
dist.monitored_barrier()
done.append(True); ticking.join()
assert rank == 1 or len(ticks) > 10, "a call that waits keeps the other threads"
objects = [None, None]
dist.all_gather_object(objects, rank); dist.broadcast_object_list(objects, 0)
dist.gather_object(rank, objects if rank == 0 else None); dist.scatter_object_list([None], objects, src=0)
(dist.send if rank == 0 else dist.recv)(t, 1 - rank)
(dist.isend if rank == 0 else dist.irecv)(t, 1 - rank, tag=3).wait()
for work in dist.batch_isend_irecv([dist.P2POp(dist.isend, t, 1 - rank), dist.P2POp(dist.irecv, pair[0], 1 - rank)]):
    work.wait()
dist.all_reduce(t, async_op=True).wait()
x = torch.ones(4, requires_grad=True)
nn_functional.all_reduce(x).sum().backward()
import torch.distributed._functional_collectives
world = dist.group.WORLD
world.allreduce(t).wait()
with torch.inference_mode():
    world.broadcast(torch.ones(4), 0)
dist._broadcast_coalesced(world, [t], 1 << 20, 0)
group = dist.new_group([0, 1]); alone = dist.new_group([0])
dist.barrier(group); dist.broadcast(t, 1, group=group)
dist.barrier(alone)
model = DistributedDataParallel(torch.nn.Sequential(torch.nn.Linear(4, 2), torch.nn.BatchNorm1d(2)))
model(torch.randn(3, 4)).sum().backward()
half = DistributedDataParallel(torch.nn.ModuleList([torch.nn.Linear(4, 1), torch.nn.Linear(4, 1)]))
half.module.forward = lambda x: half.module[0](x)
half(torch.ones(2, 4)).sum().backward()
with model.join():
    for _ in range(1 + rank):
        model(torch.randn(3, 4)).sum().backward()
try:
    dist.all_reduce("no tensor")
except Exception:
    pass
dist.barrier()
dist.destroy_process_group()
dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
dist.barrier()
torch.distributed._functional_collectives.all_reduce(t, "sum", dist.group.WORLD).wait()
dist.destroy_process_group()
"""

DRIVER = """
import json, sys
from pathlib import Path
import msgspec
from ddpcheck.evidence import Call, Defect, Site
from ddpcheck.probes import all_probes as watching
from tests.corpus.forked import run
watching.patch()
ran = run(Path(sys.argv[1]))
assert set(ran.exits.values()) == {0}, ran.output
world = ran.worlds[0]
told = []
for rank in world:
    calls = [{f: getattr(c, f) for f in c.__struct_fields__} for c in rank.process.of(Call)]
    told.append({"rank": rank.rank, "calls": calls, "defects": [d.text for d in rank.process.of(Defect)],
                 "lines": {s.id: s.line for s in rank.process.of(Site)}})
mine = ("collective-order", "no-hang", "rank-failure")
findings = [f"{f.check}: {f.message}" for f in ran.findings if f.check in mine]
print(json.dumps([sorted(told, key=lambda one: one["rank"]), findings]))
"""


@pytest.fixture(scope="module")
def told(tmp_path_factory):
    """What two ranks of the script have written down of calls."""
    script = tmp_path_factory.mktemp("collectives") / "script.py"
    script.write_text(SCRIPT)
    run = progress.run([sys.executable, "-c", DRIVER, str(script)], text=True, cwd=ROOT)
    assert run.returncode == 0, run.stderr
    return json.loads(run.stdout.splitlines()[-1])


def brief(call):
    peer = "" if call["peer"] is None else f"@{call['peer']}"
    return " ".join(filter(None, [call["op"], call["detail"], peer]))


def on(told, rank, group="world"):
    """The calls of a rank on a group, without messages, waits and the second world."""
    calls = told[0][rank]["calls"]
    pairwise = ("send", "recv", "isend", "irecv")
    return [c for c in calls if c["group"] == group and c["op"] not in (*pairwise, "wait")]


def test_every_collective_is_written_down_once(told):
    """Each with its size, reduction and source, whoever calls it: objects travel as their sizes, then as bytes."""
    assert [brief(c) for c in on(told, 0)][:32] == [
        "all_reduce float32 x 4 sum",
        "all_reduce float32 x 4 max",
        "all_reduce float32[2, 3] sum",
        "broadcast float32 x 4 @1",
        "reduce float32 x 4 sum @1",
        "all_gather float32 x 4",
        "all_gather_into_tensor float32 x 4",
        "gather float32 x 4 @0",
        "scatter float32 x 4 @0",
        "all_to_all_single float32",
        "barrier",
        *["monitored_barrier"] * 2,
        *["all_gather_object"] * 2,
        "broadcast_object_list 2 objects @0",
        "broadcast_object_list @0",
        "gather_object",
        "gather_object @0",
        *["scatter_object_list @0"] * 3,
        "all_reduce float32 x 4 sum",
        "all_reduce float32 x 4 sum",
        "all_reduce float32 x 4 sum",
        "all_reduce float32 x 4 ?",
        *["broadcast float32 x 4 @0"] * 2,
        "new_group ranks 0,1",
        "new_group ranks 0",
        "ddp-construct wrapper 0",
        "ddp-buffers wrapper 0",
    ]


def test_both_ranks_tell_the_same(told):
    """Sequences, numbers and lines of correct ranks agree, outside of join()."""
    assert told[1] == []
    ours, theirs = [
        [(c["op"], c["number"], c["detail"], c["peer"]) for c in on(told, rank) if not c["joined"]] for rank in (0, 1)
    ]
    assert ours == theirs
    numbers = [number for op, number, _, _ in ours[:-2] if op != "ddp-unfinished"]  # two are of another world
    assert numbers == list(range(1, len(numbers) + 1))


def test_nothing_of_ours_fails(told):
    """The probe has not failed anywhere, also where the script's own arguments were wrong."""
    assert [rank["defects"] for rank in told[0]] == [[], []]


def test_lines_are_the_users(told):
    """Each call has the line of the script."""
    lines = told[0][0]["lines"]
    first = on(told, 0)[0]
    assert SCRIPT.splitlines()[lines[str(first["site"])] - 1].startswith("dist.all_reduce(t);")


def test_messages_have_numbers_of_their_own(told):
    """They are counted by partner, direction and tag, and waited for by their number."""
    messages = [
        (c["op"], c["number"], c["detail"], c["waits"])
        for c in told[0][0]["calls"]
        if c["op"] in ("send", "isend", "irecv")
    ]
    assert messages == [
        ("send", 1, "", True), ("isend", 1, "tag 3", False), ("isend", 2, "", False), ("irecv", 1, "", False),
    ]  # fmt: skip
    by_n = {c["n"]: c for c in told[0][0]["calls"]}
    waits = [c for c in told[0][0]["calls"] if c["op"] == "wait"]
    assert [by_n[c["of"]]["op"] for c in waits][:4] == ["isend", "isend", "irecv", "all_reduce"]


def test_a_group_counts_its_own_calls(told):
    """A group has numbers of its own, and its members' global ranks; who is no member calls nothing."""
    assert [(c["number"], brief(c)) for c in on(told, 0, "0,1#1")] == [(1, "barrier"), (2, "broadcast float32 x 4 @1")]
    assert [len(on(told, rank, "0#1")) for rank in (0, 1)] == [1, 0]


def test_a_reduction_that_is_left_over_is_written_down(told):
    """A backward that leaves parameters out ends before DDP has reduced."""
    ops = [(c["op"], c["number"]) for c in on(told, 0)]
    over = next(number for op, number in ops if op == "ddp-unfinished")
    assert ("ddp-gradients", over) in ops
    assert [op for op, _ in ops].count("ddp-unfinished") == 1


def test_within_join_calls_have_no_number(told):
    """Leaving it is one call for all ranks."""
    for rank in (0, 1):
        joined = [c for c in on(told, rank) if c["joined"]]
        assert len({c["number"] for c in joined}) == 1
        assert [brief(c) for c in on(told, rank) if c["op"] == "join"] == ["join"]


def test_another_group_is_counted_from_one(told):
    """A second default group begins anew; functional collectives are calls, too, and their results are waited for."""
    last = [(brief(c), c["number"], c["waits"]) for c in on(told, 0)[-2:]]
    assert last == [("barrier", 1, True), ("all_reduce float32 x 4 sum", 2, False)]
    waited = told[0][0]["calls"][-1]
    assert (waited["op"], waited["of"]) == ("wait", on(told, 0)[-1]["n"])


# --- one call


@pytest.fixture
def evidence(tmp_path):
    """A recorder of this process, and what was written into it."""
    before = recorder._recorder
    recorder.begin(tmp_path, 1 << 20)

    def read():
        folder = Folder(tmp_path)
        folder.read()
        (process,) = folder.processes.values()
        return process.of(Call)

    yield read
    recorder._recorder = before
    one_call.set_joined(False)


def test_a_call_inside_of_a_call_is_none(evidence):
    """What a call calls itself is part of it, in its own thread."""
    with one_call.call("ddp-gradients", "world", "wrapper 0") as outer:
        assert main_thread._pending[0] == outer.made.n
        with one_call.call("all_reduce", "world"):
            assert one_call.current() is outer.made
    assert main_thread._pending is None
    assert one_call.current() is None
    assert [c.op for c in evidence()] == ["ddp-gradients"]


def test_a_call_that_raises_is_over(evidence):
    """The next one is a call of its own again."""
    with pytest.raises(ValueError, match="no"), one_call.call("barrier"):
        raise ValueError("no")
    with one_call.call("barrier"):
        pass
    assert [c.number for c in evidence()] == [1, 2]


def test_a_call_of_another_thread_says_so(evidence):
    """The pulses tell of the main thread alone; a call there is no part of one here."""

    def elsewhere():
        with one_call.call("broadcast"):
            assert main_thread._pending[0] == outer.made.n

    with one_call.call("barrier") as outer:
        thread = threading.Thread(target=elsewhere, name="saver")
        thread.start()
        thread.join()
        assert main_thread._pending[0] == outer.made.n
    assert [(c.op, c.thread) for c in evidence()] == [("barrier", ""), ("broadcast", "saver")]


def test_calls_of_the_users_own_are_counted(evidence):
    """DDP's and those within join() are not among them."""
    before = one_call.issued()
    for op in ("barrier", "ddp-buffers", "all_reduce"):
        with one_call.call(op):
            pass
    one_call.set_joined(True)
    with one_call.call("all_reduce"):
        pass
    assert one_call.issued() - before == 2
    assert [c.joined for c in evidence()] == [False, False, False, True]


def test_nothing_is_written_in_silence(evidence):
    """Where a probe is at work, its calls are its own affair; leaving join() is told all the same."""
    with recorder.silence():
        with one_call.call("barrier"):
            pass
        with one_call.call("join", always=True):
            pass
    assert [c.op for c in evidence()] == ["join"]


def test_an_event_is_told_to_those_who_want_it():
    """A collective of another name is none of theirs; who names none is told of all."""
    collectives, told = gradient_events.Collectives(), []
    collectives.also(lambda one, _: told.append(("all", one.kind)) or "over")
    collectives.also(lambda one, _: told.append(("sums", one.kind)), ("all_reduce", "reduce"))
    assert collectives.tell(Exchange("all_reduce", {}), None) == ["over"]
    assert collectives.tell(Exchange("barrier", {}), None) == ["over"]
    assert told == [("all", "all_reduce"), ("sums", "all_reduce"), ("all", "barrier")]


# --- in a bounded room


class Written:
    """A recorder that keeps what it is given."""

    def __init__(self, limit):
        self.limit = limit
        self.calls = []

    def write(self, record):
        self.calls.append(record)
        return record.n


def made(n, op="ddp-gradients", site=SITE, waits=True):
    return Call(n=n, at=0.0, op=op, group="world", number=n, detail="wrapper 0", site=site, waits=waits)


def filled(calls=5000, limit=1 << 20):
    """A ledger after that many calls of one line, and a rare one now and then."""
    writer = Written(limit)
    book = call_log.Ledger(writer)
    for n in range(1, calls + 1):
        book.write(made(n) if n % 500 else made(n, "barrier", site=8))
        book.went_on()
    return book, writer


def test_lines_that_call_often_are_thinned():
    """When most of the room is used, calls of lines that call often are kept in mind, and rare ones are written."""
    _, writer = filled()
    frequent = [c.n for c in writer.calls if c.op == "ddp-gradients"]
    assert len(frequent) < 2000
    assert [c.n for c in writer.calls][: frequent[-1]] == list(range(1, frequent[-1] + 1))
    assert [c.n for c in writer.calls if c.op == "barrier"] == list(range(500, 5001, 500))


def test_the_last_calls_are_told_at_the_end():
    """So that where the ranks' sequences part can be seen."""
    book, writer = filled()
    before = len(writer.calls)
    book.tell()
    assert [c.n for c in writer.calls[before:]][-1] == 4999
    assert 300 < len(writer.calls) - before <= call_log.TAIL
    book.tell()
    assert writer.calls[-1].n == 4999


def test_a_call_in_which_a_rank_waits_is_told(monkeypatch):
    """With a few before it, once it has lasted."""
    book, writer = filled()
    before = len(writer.calls)
    book.write(made(5001))
    book.look()
    assert len(writer.calls) == before
    later = clock.now() + 1
    monkeypatch.setattr(clock, "now", lambda: later)
    book.look()
    told = [c.n for c in writer.calls[before:]]
    assert told[-1] == 5001
    assert len(told) == call_log.AROUND_A_WAIT
    book.went_on()
    book.look()
    assert len(writer.calls) == before + len(told)


def test_the_room_is_never_left():
    """Whatever a run does, its calls take no more than their share."""
    book, writer = filled(20_000, limit=1 << 18)
    for n in range(20_001, 21_000):
        book.write(made(n, "barrier", site=n))
        book.tell(call_log.AROUND_A_WAIT)
    room = (1 << 18) * Call.share
    assert sum(len(frame(c)) for c in writer.calls) <= room


def test_a_process_that_was_forked_counts_anew(tmp_path):
    """Each recorder has a ledger of its own."""
    one, other = Written(1 << 20), Written(1 << 20)
    assert call_log.ledger(one).number("barrier", "world", None, "", False)[0] == 1
    assert call_log.ledger(one).number("barrier", "world", None, "", False)[0] == 2
    assert call_log.ledger(other).number("barrier", "world", None, "", False)[0] == 1


class Work:
    """What a call gives to wait for."""

    def wait(self):
        """Come back when it is over."""


@pytest.mark.parametrize(("backend", "waited", "told"), [("nccl", 0, [2]), ("nccl", 2, []), ("gloo", 0, [])])
def test_works_that_outlive_an_nccl_group(monkeypatch, backend, waited, told):
    """Of those that the program still holds, and has not waited for, when it destroys the group."""
    writer = recorder.InMemory()
    monkeypatch.setattr(recorder, "_recorder", writer)
    monkeypatch.setattr(one_call, "_works", type(one_call._works)())
    monkeypatch.setattr(every_call.c10d, "is_initialized", lambda: True)
    monkeypatch.setattr(every_call.c10d, "get_backend", lambda: backend)
    works = [Work(), Work(), Work()]
    for number, work in enumerate(works):
        made = Call(n=number, at=0.0, op="all_reduce", group="world", number=number, detail="", site=SITE)
        one_call.remember(work, one_call.Pending(made, None))
    for work in works[:waited]:
        one_call._works.pop(work)
    del work, works[2]  # one that is gone
    every_call._around_destroy(lambda: None)()
    assert [one.number for one in writer.kept if isinstance(one, Outlived)] == told


def test_what_was_latest_out_is_let_go(monkeypatch):
    """At the second look, by whichever thread: until then torch may be on its way to hand it out."""
    monkeypatch.setattr(one_call, "_latest", {})
    monkeypatch.setattr(one_call, "_looked_at", {})
    work = Work()
    made = Call(n=1, at=0.0, op="all_reduce", group="world", number=1, detail="", site=SITE)
    one_call.remember(work, one_call.Pending(made, None))
    alive = weakref.ref(work)
    del work
    one_call.let_go_in_time()
    assert alive() is not None
    one_call.let_go_in_time()
    assert alive() is None


def test_what_nothing_waits_for_is_over_when_it_returns(evidence, monkeypatch):
    """As under NCCL, which gives a function that waits nothing to wait for; else it is over when that has waited."""
    exchange, over = Exchange("all_reduce", {"tensors": [torch.ones(1)]}), []
    exchange.waits = True
    monkeypatch.setattr(Exchange, "of", classmethod(lambda *_: exchange))
    monkeypatch.setattr(every_call, "group_key", lambda _: "world")
    monkeypatch.setattr(every_call, "_tell", lambda *_: [lambda: over.append(1)])
    operator = every_call._around_operator(lambda *_: None, "allreduce_", [])
    operator(None)
    assert over == [1]
    work = Work()
    monkeypatch.setattr(every_call, "_work_of", lambda _: work)
    monkeypatch.setattr(every_call, "_waits", [Work.wait])
    operator(None)
    assert over == [1]
    with one_call.wait(one_call.of_work(work)):
        assert main_thread._pending is not None
    assert (over, main_thread._pending) == ([1, 1], None)
