"""Marks on a device: asked of from any thread, without a context, a wait or a broken capture."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable

import pytest

from ddpcheck.probes.devices import device_events
from tests.probes.devices.fake_cuda import CONTEXTS, FakeCuda, FakeEvent


def _elsewhere(ask: Callable[[], bool]) -> bool:
    """What another thread is answered."""
    answers: list[bool] = []
    thread = threading.Thread(target=lambda: answers.append(ask()))
    thread.start()
    thread.join()
    return answers[0]


def test_an_event_is_over_once_the_device_has_passed_it(cuda: FakeCuda) -> None:
    event = device_events.record()
    assert event is not None
    assert not event.is_over()
    cuda.finish()
    assert event.is_over()


def test_any_thread_may_ask_in_the_context_of_the_event_and_breaks_no_capture(cuda: FakeCuda) -> None:
    event = device_events.record()
    assert event is not None
    assert not _elsewhere(event.is_over)
    cuda.finish()
    assert _elsewhere(event.is_over)
    assert cuda.modes == [2, 2]
    assert cuda.contexts == [CONTEXTS[0]] * 2
    assert cuda.asked_by_torch == 0


def test_the_thread_that_asks_is_as_it_was_before(cuda: FakeCuda) -> None:
    other = device_events.record(device=1)
    assert other is not None
    cuda.here.mode = 1
    assert not other.is_over()
    assert cuda.contexts == [CONTEXTS[1]]
    assert cuda.here.context == CONTEXTS[0]
    assert cuda.here.mode == 1


def test_events_are_used_again(cuda: FakeCuda) -> None:
    for _ in range(5):
        event = device_events.record()
        assert event is not None
        event.release()
        assert event.is_over()
    assert len(cuda.made) == 1


def test_an_event_of_one_device_is_not_used_on_another(cuda: FakeCuda) -> None:
    first = device_events.record(device=0)
    assert first is not None
    first.release()
    second = device_events.record(device=1)
    assert second is not None
    cuda.finish(0)
    assert not second.is_over()
    cuda.finish(1)
    assert second.is_over()


@pytest.mark.parametrize(("field", "value"), [("initialised", False), ("capturing", True), ("with_contexts", set())])
def test_nothing_is_recorded_where_that_would_do_harm(cuda: FakeCuda, field: str, value: object) -> None:
    setattr(cuda, field, value)
    assert device_events.record() is None
    assert cuda.made == []


@pytest.mark.parametrize("code", [700, 709, 4, 201])
def test_after_an_error_of_the_device_nothing_waits(cuda: FakeCuda, code: int) -> None:
    event = device_events.record()
    assert event is not None
    cuda.answer = code
    assert event.is_over()


@pytest.mark.parametrize("code", [900, 906, 908])
def test_a_question_that_may_not_be_asked_now_says_nothing(cuda: FakeCuda, code: int) -> None:
    event = device_events.record()
    assert event is not None
    assert event.is_ahead()
    cuda.answer = code
    assert not event.is_over()
    assert not event.is_ahead()


def test_without_the_driver_only_the_recording_thread_may_ask(rocm: FakeCuda) -> None:
    event = device_events.record()
    assert event is not None
    assert event.is_ahead()
    rocm.finish()
    assert not _elsewhere(event.is_over)
    assert not _elsewhere(event.is_ahead)
    rocm.capturing = True
    assert not event.is_over()
    assert not event.is_ahead()
    assert rocm.asked_by_torch == 1
    rocm.capturing = False
    assert event.is_over()


def test_what_another_thread_lets_go_of_while_it_is_asked_for_is_not_ahead(
    cuda: FakeCuda, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may have been recorded again, elsewhere, when the driver answers."""
    event = device_events.record()
    assert event is not None
    driver = device_events._driver()
    assert driver is not None
    asked = driver.ask

    def ask(*given: int) -> int:
        event.release()
        return asked(*given)

    monkeypatch.setattr(driver, "ask", ask)
    assert not event.is_ahead()


def test_a_fork_destroys_nothing(cuda: FakeCuda, monkeypatch: pytest.MonkeyPatch) -> None:
    """CUDA is not to be called there, and an event that is let go calls it."""
    destroyed: list[int] = []
    monkeypatch.setattr(FakeEvent, "__del__", lambda self: destroyed.append(id(self)), raising=False)
    event = device_events.record()
    assert event is not None
    event.release()
    pooled = {id(one) for each in device_events._pool.values() for one in each}  # others may go at any moment
    assert pooled
    cuda.made.clear()
    del event
    child = os.fork()
    if child == 0:
        os._exit(1 if pooled.intersection(destroyed) or device_events._pool else 0)
    assert os.waitpid(child, 0)[1] == 0


def test_a_fork_asks_nothing(cuda: FakeCuda) -> None:
    event = device_events.record()
    assert event is not None
    child = os.fork()
    if child == 0:
        over = event.is_over()
        event.release()
        os._exit(0 if over and not cuda.modes and not device_events._pool else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert not event.is_over()


def test_a_device_that_refuses_is_no_defect(cuda: FakeCuda, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse() -> None:
        raise RuntimeError("CUDA error: device-side assert triggered")

    monkeypatch.setattr(device_events.torch.cuda, "Event", refuse)
    assert device_events.record() is None


def test_without_cuda_nothing_is_recorded() -> None:
    assert device_events.record() is None
