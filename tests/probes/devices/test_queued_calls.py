"""Queued calls between their marks: which of them a device has not finished, on a device that the test steers."""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.distributed import distributed_c10d as c10d

from ddpcheck import evidence as ev
from ddpcheck.judging.evidence_folder import Folder
from ddpcheck.judging.world import Process
from ddpcheck.probes.collectives import one_call
from ddpcheck.probes.collectives.exchange import Exchange
from ddpcheck.probes.devices import asking_thread, device_events, flight_recorder, queued_calls
from ddpcheck.probes.files import file_records
from ddpcheck.probes.processes import main_thread
from ddpcheck.probes.recording import recorder
from tests.probes.devices.fake_cuda import FakeCuda, FakeEvent

DEADLINE = 20.0


@pytest.fixture
def writer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[recorder.Recorder]:
    """A process that is recorded, with no thread that asks: the test does."""
    monkeypatch.setattr(asking_thread, "start_new_thread", lambda *_: None)
    monkeypatch.setattr(asking_thread, "_owner", 0)
    queued_calls._forget()
    yield recorder.begin(tmp_path, 1 << 20)
    recorder.stop()
    queued_calls._forget()


def _process(folder: Path) -> Process:
    found = Folder(folder)
    found.read()
    (process,) = found.processes.values()
    return process


def _queue(call: int, device: int = 0) -> queued_calls.Mark:
    """A call that was queued and has returned."""
    mark = queued_calls.begin(call, device)
    assert mark is not None
    mark.end()
    return mark


def _later(monkeypatch: pytest.MonkeyPatch, seconds: float) -> None:
    now = queued_calls.clock.now
    monkeypatch.setattr(queued_calls.clock, "now", lambda: now() + seconds)


# --- the oldest that is not finished


def test_the_oldest_is_told_once_it_has_lasted(
    writer: recorder.Recorder, cuda: FakeCuda, monkeypatch: pytest.MonkeyPatch
) -> None:
    """First the device does what comes before it, and then it is in it."""
    _queue(5)
    _queue(9)
    queued_calls._ask()
    assert queued_calls.oldest() == (None, None), "a device at work passes many"
    _later(monkeypatch, 2.0)
    queued_calls._ask()
    assert queued_calls.oldest() == (5, None), "it computes what comes before"
    cuda.done[0] = 1
    queued_calls._ask()
    call, since = queued_calls.oldest()
    assert call == 5
    assert since is not None
    _later(monkeypatch, 2.0)
    queued_calls._ask()
    assert queued_calls.oldest() == (5, since)
    cuda.done[0] = 2
    queued_calls._ask()
    assert queued_calls.oldest() == (None, None), "another one is the oldest now"
    cuda.finish()
    queued_calls._ask()
    _later(monkeypatch, 2.0)
    queued_calls._ask()
    assert queued_calls.oldest() == (None, None)


def test_an_old_answer_is_worth_nothing(
    writer: recorder.Recorder, cuda: FakeCuda, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The driver keeps who asks waiting: nobody knows how far the device has come meanwhile."""
    _queue(5)
    queued_calls._ask()
    _later(monkeypatch, 2.0)
    queued_calls._ask()
    assert queued_calls.oldest()[0] == 5
    _later(monkeypatch, 4.0)
    assert queued_calls.oldest() == (None, None)


def test_a_device_that_is_far_behind_takes_no_more_room(writer: recorder.Recorder, cuda: FakeCuda) -> None:
    """Nothing new is marked where the oldest are not finished; when they are, it goes on with the same events."""
    for call in range(queued_calls.MOST):
        _queue(call)
    assert queued_calls.begin(1000, 0) is None
    assert len(cuda.made) == 2 * queued_calls.MOST
    cuda.finish()
    for call in range(1000):
        _queue(call)
        cuda.finish()
    assert len(cuda.made) <= 2 * queued_calls.MOST + 2


def test_a_call_takes_two_events_and_no_question(writer: recorder.Recorder, cuda: FakeCuda) -> None:
    """The thread that asks is another one; what Python does for it takes some microseconds, here at most a tenth of a
    millisecond of a machine that is busy.
    """
    best = float("inf")
    for call in range(100):
        began = time.perf_counter()
        _queue(call)
        best = min(best, time.perf_counter() - began)
    assert cuda.queued[0] == 200
    assert cuda.modes == []
    assert cuda.asked_by_torch == 0
    assert best < 1e-4


def test_nothing_is_marked_in_a_capture_and_a_call_that_ends_in_one_is_forgotten(
    writer: recorder.Recorder, cuda: FakeCuda
) -> None:
    """What is captured is replayed without Python."""
    cuda.capturing = True
    assert queued_calls.begin(1, 0) is None
    cuda.capturing = False
    mark = queued_calls.begin(1, 0)
    assert mark is not None
    cuda.capturing = True
    mark.end()
    assert not queued_calls._marked
    assert device_events._pool[0, False], "its event can be used again"


def test_who_holds_the_oldest_keeps_nobody_waiting(writer: recorder.Recorder, cuda: FakeCuda) -> None:
    """A thread that the driver keeps waiting holds up no call of the program."""
    assert queued_calls._asking.acquire(False)
    for call in range(queued_calls.MOST):
        _queue(call)
    assert queued_calls.begin(1000, 0) is None
    queued_calls.note_host_ahead(writer)
    queued_calls._asking.release()


def test_a_fork_knows_of_none(writer: recorder.Recorder, cuda: FakeCuda) -> None:
    """CUDA does not outlive a fork, nor does what was queued."""
    _queue(5)
    child = os.fork()
    if child == 0:
        os._exit(len(queued_calls._marked))
    assert os.waitpid(child, 0)[1] == 0
    assert len(queued_calls._marked) == 1


def test_a_thread_of_its_own_asks(cuda: FakeCuda, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """None of the program's threads, in a context of the device; it ends with the recording."""
    monkeypatch.setattr(asking_thread, "PERIOD", 0.01)
    monkeypatch.setattr(queued_calls, "LASTED", 0.05)
    queued_calls._forget()
    threads = threading.enumerate()
    recorder.begin(tmp_path, 1 << 20)
    try:
        _queue(7)
        end = time.monotonic() + DEADLINE
        while queued_calls.oldest() == (None, None) and time.monotonic() < end:
            time.sleep(0.01)
        assert queued_calls.oldest() == (7, None)
        assert threading.enumerate() == threads
        assert set(cuda.modes) == {2}
        assert set(cuda.contexts) == {device_events._contexts[0]}
    finally:
        recorder.stop()
    while asking_thread._owner and time.monotonic() < end:
        time.sleep(0.01)
    assert not asking_thread._owner
    queued_calls._forget()


# --- calls as they are made


def test_a_call_is_marked_around_and_says_that_it_was_only_queued(
    writer: recorder.Recorder, cuda: FakeCuda, tmp_path: Path
) -> None:
    """An asynchronous one is marked when somebody has waited for it; one that raises is not."""
    with one_call.call("all_reduce", device=0):
        pass
    with one_call.call("barrier"):
        pass
    with one_call.call("all_reduce", waits=False, device=0) as asynchronous:
        pass

    class Work:
        pass

    work = Work()
    assert asynchronous.made is not None
    one_call.remember(work, one_call.Pending(asynchronous.made, asynchronous.mark))
    assert [mark.call for mark in queued_calls._marked] == [_process(tmp_path).of(ev.Call)[0].n]
    with one_call.wait(one_call.of_work(work)):
        pass
    assert one_call.of_work(work) == [], "it has been waited for"
    with pytest.raises(ValueError, match="refused"), one_call.call("all_reduce", device=0):
        raise ValueError("refused")
    made = _process(tmp_path).of(ev.Call)
    assert [(call.op, call.queued) for call in made] == [
        ("all_reduce", True),
        ("barrier", False),
        ("all_reduce", True),
        ("wait", True),
        ("all_reduce", True),
    ]
    assert [mark.call for mark in queued_calls._marked] == [made[0].n, made[2].n]


def _asynchronous(op: str) -> one_call.Pending:
    with one_call.call(op, waits=False, device=0) as this:
        assert this.made is not None
    return one_call.Pending(this.made, this.mark)


def test_the_result_of_a_functional_collective_is_what_is_waited_for(writer: recorder.Recorder, cuda: FakeCuda) -> None:
    """The result, or a view of it, names the call; neither is kept alive, and old results are forgotten."""
    result = torch.zeros(1)
    first = _asynchronous("all_reduce")
    before = sys.getrefcount(result)
    one_call.remember_results([result], first)
    after = sys.getrefcount(result)
    assert after == before
    with one_call.wait(one_call.of_result(torch.zeros(1))):
        pass
    assert not queued_calls._marked
    with one_call.wait(one_call.of_result(result.view(1, 1))):
        pass
    assert [mark.call for mark in queued_calls._marked] == [first.made.n]
    others = [torch.zeros(1) for _ in range(one_call.MOST_RESULTS + 1)]
    for other in others:
        one_call.remember_results([other], _asynchronous("all_reduce"))
    assert one_call.of_result(others[0]) == []
    assert one_call.of_result(others[1]) != []


def test_a_batch_is_waited_for_by_the_one_work_of_all(
    writer: recorder.Recorder, cuda: FakeCuda, tmp_path: Path
) -> None:
    """As under NCCL; elsewhere each of its calls has a work of its own."""

    class Work:
        pass

    for one_for_all in (True, False):
        queued_calls._forget()
        given = [Work(), Work()]
        with one_call.batch() as works:
            calls = [_asynchronous("isend"), _asynchronous("irecv")]
            for call, own in zip(calls, given, strict=True):
                one_call.remember(None if one_for_all else own, call)
            works += given[1:] if one_for_all else given
        for work in works:
            with one_call.wait(one_call.of_work(work)):
                pass
        assert [mark.call for mark in queued_calls._marked] == [call.made.n for call in calls]
        waited = [call.of for call in _process(tmp_path).of(ev.Call) if call.op == "wait"]
        assert waited[-2:] == [call.made.n for call in calls]


@pytest.mark.parametrize(
    ("backends", "queues"),
    [
        ("nccl", True),
        ("cuda:nccl", True),
        ("cpu:gloo,cuda:nccl", True),
        ("cuda:nccl2", True),
        ("cpu:gloo,cuda:nccl-legacy", True),
        ("nccl-lazy", True),
        ("cpu:gloo,cuda:gloo", False),
        ("gloo", False),
        ("undefined", False),
    ],
)
def test_only_nccl_queues(cuda: FakeCuda, monkeypatch: pytest.MonkeyPatch, backends: str, queues: bool) -> None:
    """By the device of the tensors: a group may have a backend for each kind."""
    monkeypatch.setattr(c10d, "get_backend_config", lambda group: backends)

    class Group:
        pass

    group = Group()
    assert queued_calls.device_for(group, torch.device("cuda", 1)) == (1 if queues else None)
    assert queued_calls.device_for(group, torch.device("cpu")) is None
    with FakeTensorMode():
        on_gpu, on_cpu = torch.empty(2, device="cuda:1"), torch.empty(2)

    def asked(op: str, value: Any) -> int | None:
        return queued_calls.device_of(Exchange(op, {"tensors": value}, group))

    expected = 1 if queues else None
    assert asked("all_reduce", on_gpu) == asked("all_gather", [on_gpu, on_cpu]) == expected
    assert asked("all_reduce", on_cpu) is asked("barrier", on_gpu) is asked("all_gather_object", on_gpu) is None
    cuda.initialised = False
    assert asked("all_reduce", on_gpu) is None


def test_a_group_of_another_kind_queues_nothing(cuda: FakeCuda) -> None:
    """One that torch does not know of."""
    assert queued_calls.device_for(object(), torch.device("cuda", 0)) is None


# --- hosts that are ahead


def test_a_file_that_is_touched_before_the_device_is_done_is_told_of(
    writer: recorder.Recorder, cuda: FakeCuda, tmp_path: Path
) -> None:
    """Behind the number of what is about to be done; nothing once the device has finished, nor in another thread."""
    first, second = _queue(5), _queue(9)
    cuda.done[0] = 2
    begun = file_records.begin(writer)
    thread = threading.Thread(target=file_records.begin, args=[writer])
    thread.start()
    thread.join()
    cuda.finish()
    file_records.begin(writer)
    (told,) = _process(tmp_path).of(ev.HostAhead)
    assert told.calls == [9]
    assert told.n > begun["n"]
    assert first.is_over
    assert second.is_over


def test_an_asynchronous_call_may_be_over_behind_what_was_queued_since(
    writer: recorder.Recorder, cuda: FakeCuda, tmp_path: Path
) -> None:
    """Its second mark stands where it was waited for: that it is not passed says nothing of the call."""
    mark = queued_calls.begin(5, 0, waits=False)
    assert mark is not None
    mark.end()
    file_records.begin(writer)
    assert [told.calls for told in _process(tmp_path).of(ev.HostAhead)] == [[5]], "it has not begun"
    cuda.done[0] = 1
    file_records.begin(writer)
    assert len(_process(tmp_path).of(ev.HostAhead)) == 1


def test_a_host_that_is_far_ahead_asks_for_few(
    writer: recorder.Recorder, cuda: FakeCuda, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is behind the first that is not finished is not finished; an asynchronous one may be, and so another stream.

    Each question gives up the GIL: a program that writes a line to a file would wait for it as often.
    """
    early = queued_calls.begin(1, 0, waits=False)
    assert early is not None
    calls = list(range(2, 100))
    for call in calls:
        _queue(call)
    early.end()
    beside = SimpleNamespace(device_index=1, cuda_stream=0x500)
    with monkeypatch.context() as other:
        other.setattr(torch.cuda, "current_stream", lambda device: beside)
        _queue(100, device=1)
    cuda.finish(1)
    cuda.done[0] = 1
    cuda.modes.clear()
    file_records.begin(writer)
    (told,) = _process(tmp_path).of(ev.HostAhead)
    assert told.calls == calls
    assert len(cuda.modes) <= 4


def test_a_call_of_another_thread_is_not_told_of_where_it_cannot_be_asked_for(
    writer: recorder.Recorder, rocm: FakeCuda, tmp_path: Path
) -> None:
    """Without a driver to ask, only the thread that has marked it knows: it may be done for long."""
    thread = threading.Thread(target=_queue, args=[5])
    thread.start()
    thread.join()
    rocm.finish()
    file_records.begin(writer)
    assert _process(tmp_path).of(ev.HostAhead) == []


def test_a_fork_lets_go_of_no_mark(writer: recorder.Recorder, cuda: FakeCuda, monkeypatch: pytest.MonkeyPatch) -> None:
    """That would call CUDA, in a process that must not."""
    destroyed: list[int] = []
    monkeypatch.setattr(FakeEvent, "__del__", lambda self: destroyed.append(1), raising=False)
    _queue(5)
    cuda.made.clear()
    child = os.fork()
    if child == 0:
        os._exit(len(destroyed))
    assert os.waitpid(child, 0)[1] == 0


def test_calls_on_another_stream_say_nothing_of_what_the_host_waits_for(
    writer: recorder.Recorder, cuda: FakeCuda, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may wait for what is computed on the default one meanwhile."""
    assert not queued_calls.are_on_default_stream()
    _queue(5)
    assert queued_calls.are_on_default_stream()
    _queue(6, device=1)
    assert not queued_calls.are_on_default_stream()
    queued_calls._forget()
    beside = SimpleNamespace(device_index=0, cuda_stream=0x500)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: beside)
    _queue(7)
    assert not queued_calls.are_on_default_stream()


class Late(Exception):
    """What a signal handler of the program's raises."""


@pytest.mark.parametrize("at", ["before", "after", "wait"])
def test_a_signal_that_comes_while_a_call_is_marked_leaves_nothing_open(
    writer: recorder.Recorder, cuda: FakeCuda, monkeypatch: pytest.MonkeyPatch, at: str
) -> None:
    """The program goes on, and what it calls next is a call of its own."""

    class Work:
        pass

    def interrupt(*_: Any) -> None:
        raise Late

    work = Work()
    with one_call.call("all_reduce", waits=False, device=0) as asynchronous:
        pass
    assert asynchronous.made is not None
    one_call.remember(work, one_call.Pending(asynchronous.made, asynchronous.mark))
    owner, name = (queued_calls, "begin") if at == "before" else (queued_calls.Mark, "end")
    monkeypatch.setattr(owner, name, interrupt)
    with (
        pytest.raises(Late),
        one_call.wait(one_call.of_work(work)) if at == "wait" else one_call.call("all_reduce", device=0),
    ):
        pass
    assert main_thread._pending is None
    assert not one_call.unwatched()


# --- NCCL's flight recorder

ENTRIES = [
    {"profiling_name": "nccl:all_reduce", "state": "completed", "input_sizes": [[4]]},
    {"profiling_name": "nccl:all_gather", "state": "started", "input_sizes": [[4, 2]], "frames": []},
    {"profiling_name": "nccl:broadcast", "state": "scheduled", "input_sizes": [[1]]},
]


def _dumps(monkeypatch: pytest.MonkeyPatch, dump: Any) -> None:
    monkeypatch.setattr(flight_recorder, "_asked", None)
    monkeypatch.setattr(torch._C._distributed_c10d, "_dump_nccl_trace_json", dump, raising=False)
    monkeypatch.delattr(torch._C._distributed_c10d, "FlightRecorderHook", raising=False)


def test_the_flight_recorder_is_asked_once_after_a_long_wait(
    writer: recorder.Recorder, cuda: FakeCuda, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For the collectives that are not over."""
    asked: list[tuple[object, ...]] = []

    def dump(*arguments: object) -> bytes:
        asked.append((arguments, cuda.here.mode))
        return json.dumps({"entries": ENTRIES}).encode()

    _dumps(monkeypatch, dump)
    _queue(5)
    now = queued_calls.clock.now()
    flight_recorder.look(writer, None, None)
    flight_recorder.look(writer, 5, None)
    flight_recorder.look(writer, 5, now - 1)
    assert asked == []
    for _ in range(2):
        flight_recorder.look(writer, 5, now - flight_recorder.LONG)
    assert asked == [((True, True), 2)], "in the mode in which no capture is broken"
    (told,) = _process(tmp_path).of(ev.FlightRecord)
    assert (told.call, told.name, told.sizes, told.state) == (5, "nccl:all_gather", [[4, 2]], "started")


def test_the_default_nccl_of_newer_torches_has_a_recorder_of_its_own(
    writer: recorder.Recorder, cuda: FakeCuda, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From 2.15 on the other one has nothing of it."""
    started = {"profiling_name": "nccl2:all_reduce", "state": "started", "input_sizes": [[8]]}
    recorders = {"nccl": [], "nccl2": [started], "nccl-lazy": []}

    def dump(*arguments: object) -> bytes:
        *which, backend = arguments
        assert which == [True, True]
        return json.dumps({"entries": recorders[str(backend)]}).encode()

    _dumps(monkeypatch, lambda *which: dump(*which, "nccl"))
    monkeypatch.setattr(torch._C._distributed_c10d, "_dump_fr_trace_json", dump, raising=False)
    monkeypatch.setattr(torch._C._distributed_c10d, "FlightRecorderHook", object, raising=False)
    _queue(5)
    flight_recorder.look(writer, 5, queued_calls.clock.now() - flight_recorder.LONG)
    (told,) = _process(tmp_path).of(ev.FlightRecord)
    assert (told.name, told.sizes, told.state) == ("nccl2:all_reduce", [[8]], "started")


@pytest.mark.parametrize("said", [b"no document", b'{"version": "2"}', b"[]", b'{"entries": [3, {}]}'])
def test_a_flight_recorder_that_says_nothing_useful_is_none(
    writer: recorder.Recorder, cuda: FakeCuda, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: bytes
) -> None:
    """It may be off, or of another version."""
    _dumps(monkeypatch, lambda *_: said)
    _queue(5)
    flight_recorder.look(writer, 5, queued_calls.clock.now() - flight_recorder.LONG)
    assert _process(tmp_path).of(ev.FlightRecord) == []
    assert _process(tmp_path).of(ev.Defect) == []


def test_without_a_driver_it_is_not_asked(
    writer: recorder.Recorder, rocm: FakeCuda, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To ask from another thread might make a context on a device."""
    asked: list[object] = []
    _dumps(monkeypatch, lambda *_: asked.append(1))
    flight_recorder.look(writer, 5, queued_calls.clock.now() - flight_recorder.LONG)
    assert asked == []
