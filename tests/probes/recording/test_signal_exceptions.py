"""What a program's signal handler raises in the midst of our own code is the program's."""

from __future__ import annotations

import functools
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from ddpcheck.evidence import Defect
from ddpcheck.probes.ddp import forward_inputs
from ddpcheck.probes.files import file_records, paths, small_files
from ddpcheck.probes.recording import recorder
from ddpcheck.probes.recording.signal_exceptions import raised_by_handler


class Late(Exception):
    pass


class Handler:
    def __call__(self, number: int, frame: FrameType | None) -> None:
        raise Late

    def method(self, number: int, frame: FrameType | None) -> None:
        raise Late


def late(number: int, frame: FrameType | None) -> None:
    raise Late


def once(number: int, frame: FrameType | None) -> None:
    """Takes itself away first, as most do."""
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    raise Late


def once_with_whatever(*given: object) -> None:
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    raise Late


def timed_out(number: int, frame: FrameType | None) -> None:
    raise TimeoutError


@pytest.fixture(autouse=True)
def _as_before() -> Iterator[None]:
    before = signal.getsignal(signal.SIGALRM)
    yield
    signal.signal(signal.SIGALRM, before)


@pytest.mark.parametrize(
    "handler", [late, Handler(), Handler().method, functools.partial(late), once, once_with_whatever, timed_out]
)
def test_it_is_known_for_what_it_is(handler: Callable[..., Any]) -> None:
    """Whatever kind of handler it is, and though it be set no more."""
    signal.signal(signal.SIGALRM, handler)
    with pytest.raises((Late, TimeoutError)) as raised:
        signal.raise_signal(signal.SIGALRM)
    assert raised_by_handler(raised.value)


def test_what_else_is_raised() -> None:
    """Is not, though a handler is set."""

    def fails(frame: object = None) -> None:
        raise Late

    signal.signal(signal.SIGALRM, late)
    with pytest.raises(Late) as raised:
        fails()
    assert not raised_by_handler(raised.value)


class Ticks:
    """Whatever is asked of it, the time is up."""

    def __len__(self) -> int:
        signal.raise_signal(signal.SIGALRM)
        return 0

    def __iter__(self) -> Iterator[int]:
        signal.raise_signal(signal.SIGALRM)
        return iter(())


def _written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def frame(record: object) -> bytes:
        signal.raise_signal(signal.SIGALRM)
        return b""

    writer = recorder.begin(tmp_path, 1 << 20)
    monkeypatch.setattr(recorder, "frame", frame)
    writer.write(Defect(n=1, at=0.0, text=""))


def _asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(paths.os, "stat", lambda path: signal.raise_signal(signal.SIGALRM))
    paths.identity("file")


def _read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(small_files.os, "stat", lambda path: signal.raise_signal(signal.SIGALRM))
    small_files._read("file")


def _locked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_records, "_locks", {0: (0, 0)})
    monkeypatch.setattr(file_records.os, "fstat", lambda descriptor: signal.raise_signal(signal.SIGALRM))
    file_records._held()


def _measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    recorder.begin(tmp_path, 1 << 20)
    monkeypatch.setattr(forward_inputs, "heads", lambda *given, **more: b"".join(Ticks()))
    forward_inputs.note_inputs((), {}, 0)


@pytest.mark.parametrize("handler", [late, timed_out])
@pytest.mark.parametrize("at_work", [_written, _asked, _read, _locked, _measured])
def test_it_goes_through(
    at_work: Callable[..., None], handler: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where we expect errors of other kinds, such as a file that is not there."""
    signal.signal(signal.SIGALRM, handler)
    try:
        with monkeypatch.context() as patch, pytest.raises((Late, TimeoutError)):
            at_work(tmp_path, patch)
    finally:
        recorder.stop()
