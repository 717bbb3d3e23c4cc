"""The numbers that calls are known by, in a bounded room."""

from __future__ import annotations

import pytest

from ddpcheck.evidence import Call
from ddpcheck.probes.collectives.call_log import TAGS, Ledger
from ddpcheck.probes.devices import queued_calls
from ddpcheck.probes.recording import recorder


@pytest.fixture
def book(tmp_path):
    writer = recorder.Recorder(tmp_path, 1 << 20)
    yield Ledger(writer)
    writer.close()


def sent(book, tag, peer=1, op="send"):
    return book.number(op, "world", peer, f"tag {tag}", False)


def test_each_way_and_tag_is_counted_by_itself(book):
    """As the partner counts it, which sees the same messages."""
    assert [sent(book, 5), sent(book, 5), sent(book, 6), sent(book, 5, peer=2), sent(book, 5, op="recv")] == [
        (1, True), (2, True), (1, True), (1, True), (1, True),
    ]  # fmt: skip
    assert [book.number("barrier", "world", None, "", joined) for joined in (False, True, False)] == [
        (1, True), (1, True), (2, True),
    ]  # fmt: skip


def test_a_tag_for_each_message_takes_no_more_room(book):
    """Those used last are known for certain; of what comes new nobody knows whether it is."""
    for tag in range(TAGS):
        assert sent(book, tag) == (1, True)
    assert sent(book, 0) == (2, True)
    for tag in range(TAGS, 3 * TAGS):
        sent(book, tag)
        assert sent(book, 0)[1], "it is used all the time"
    assert sent(book, 0) == (2 + 2 * TAGS + 1, True)
    assert sent(book, 1) == (1, False), "it was forgotten"
    assert sent(book, 1) == (2, False)
    assert sent(book, 1, peer=2) == (1, True)
    assert len(book._messages["world", False, 1]._counts) == TAGS
    book.forget_numbers()
    assert sent(book, 1) == (1, True), "another group"


def test_the_call_that_a_device_is_in_is_written_from_memory(book, monkeypatch):
    """Once, with those behind it: the host may be far ahead, and the call has returned long ago."""
    book._used = book._room
    calls = [
        Call(n=n, at=n, op="all_reduce", group="world", number=n, detail="", site=1, queued=True) for n in range(99)
    ]
    for one in calls:
        book.write(one)
        book.went_on()
    written = []
    monkeypatch.setattr(book, "_write", written.append)
    book.look()
    assert written == []
    monkeypatch.setattr(queued_calls, "oldest", lambda: (40, 0.0))
    book.look()
    book.look()
    assert written[0].n == 40
    assert [call.n for call in written] == list(range(40, 40 + len(written)))
    assert book._tail[0].n == written[-1].n + 1, "what comes behind is in mind still"
    assert book._tail[-1].n == 98
