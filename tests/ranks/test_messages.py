"""Messages in frames on a socket: what goes in comes out, and nothing else does."""

from __future__ import annotations

import pickle
import socket
import threading
import types
import typing
from typing import Any, Literal, Union

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ddpcheck.ranks import messages as wire
from ddpcheck.ranks.channel import Channel, Closed
from ddpcheck.ranks.plain_data import encode
from ddpcheck.vocabulary.model import CallSite, Leftover, PhaseReport

MESSAGES = typing.get_args(wire.AnyMessage)

quick = settings(deadline=None, database=None, max_examples=25)


@pytest.fixture
def pair():
    """Two connected channels."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        yield Channel(ours), Channel(theirs)


def round_trip(message):
    """What a rank's message is after its way through a socket."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        Channel(ours).send(message)
        return Channel(theirs).receive()


def facts_of(facts):
    """Facts after a round trip."""
    return round_trip(wire.Answer(facts=facts)).facts


def frame(body):
    return len(body).to_bytes(4, "little") + body


def reported(**properties):
    data = {"user_properties": [[name, value] for name, value in properties.items()]}
    return wire.Reported(report=PhaseReport(phase="call", outcome="passed", at=1.0, data=data))


def properties_of(message):
    return dict(round_trip(message).report.data["user_properties"])


# --- every message

# Characters of every length in UTF-8; a given alphabet spares hypothesis its table of all of Unicode.
readable = "a0\0\né漢😀"
text = st.text(readable, max_size=8)
whole = st.integers(-(2**63), 2**64 - 1)
number = st.floats(allow_nan=False)
plain = st.recursive(
    st.none() | st.booleans() | whole | number | text | st.binary(max_size=8),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(text, inner, max_size=2),
    max_leaves=4,
)
BY_TYPE = {
    str: text,
    int: whole,
    float: number,
    bool: st.booleans(),
    bytes: st.binary(max_size=8),
    type(None): st.none(),
    Any: plain,
}


def values_of(annotation):
    """Values of a message's field, by its annotation."""
    if annotation in BY_TYPE:
        return BY_TYPE[annotation]
    origin, parameters = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is Literal:
        return st.sampled_from(parameters)
    if origin in (Union, types.UnionType):
        return st.one_of(map(values_of, parameters))
    if origin is tuple and parameters[-1] is Ellipsis:
        return st.lists(values_of(parameters[0]), max_size=2).map(tuple)
    if origin is tuple:
        return st.tuples(*map(values_of, parameters))
    if origin is list:
        return st.lists(values_of(parameters[0]), max_size=2)
    if origin is dict:
        return st.dictionaries(*map(values_of, parameters), max_size=2)
    return st.deferred(lambda: messages_of(annotation))  # a value may hold others of its kind


def messages_of(kind):
    hints = typing.get_type_hints(kind)
    return st.builds(kind, **{name: values_of(hints[name]) for name in kind.__struct_fields__})


@pytest.mark.parametrize("kind", MESSAGES, ids=lambda kind: kind.__name__)
def test_every_message_comes_out_as_it_went_in(kind):
    """Each kind of message, whatever is in it, arrives as an equal one of its kind."""

    @quick
    @given(messages_of(kind))
    def check(message):
        received = round_trip(message)
        assert type(received) is kind
        assert received == message

    check()


def test_messages_keep_their_order(pair):
    """Messages that arrive in one read are handed out one by one, first come first."""
    ours, theirs = pair
    sent = [wire.Collect(path=str(number)) for number in range(5)]
    ours.sock.sendall(b"".join(frame(encode(message)) for message in sent))
    assert [theirs.receive() for _ in sent] == sent


def test_all_that_is_complete_is_handed_over_at_once(pair):
    """receive_ready gives every message of one read, and keeps the beginning of the next."""
    ours, theirs = pair
    sent = [wire.Go(), wire.Collect(path="a"), wire.Release()]
    stream = b"".join(frame(encode(message)) for message in sent)
    ours.sock.sendall(stream[:-1])
    assert theirs.receive_ready() == sent[:2]
    ours.sock.sendall(stream[-1:])
    assert theirs.receive_ready() == sent[2:]


# --- text that UTF-8 cannot carry

anything = st.text([*readable, "\ud800", "\udcff", "\udfff"], max_size=8)


@quick
@given(anything, anything)
def test_any_text_arrives_readable(key, value):
    """Lone surrogates, which captured bytes and file names may hold, arrive as their escapes."""
    expected = {key.encode("utf-8", "backslashreplace").decode(): [value.encode("utf-8", "backslashreplace").decode()]}
    assert facts_of({key: [value]}) == expected


def test_a_surrogate_in_a_typed_field_arrives_escaped():
    """The name of a thread may be any text; the message is the same but for the escape."""
    message = wire.Done(leftovers=(Leftover(kind="thread", name="a\udcff", rank=1),))
    assert round_trip(message) == wire.Done(leftovers=(Leftover(kind="thread", name="a\\udcff", rank=1),))


@quick
@given(st.binary(max_size=16))
def test_captured_bytes_arrive_readable(raw):
    """Any bytes that were decoded with surrogateescape arrive as text without surrogates."""
    received = facts_of(raw.decode("utf-8", "surrogateescape"))
    received.encode("utf-8")
    if raw.isascii():
        assert received == raw.decode()


# --- objects that are no plain data


class Unspeakable:
    """An object whose repr fails."""

    def __repr__(self):
        raise RuntimeError("no repr")


def test_objects_in_a_report_arrive_as_their_repr():
    """A test may record any object as a property; a reader gets its repr, as junitxml would write it."""
    assert properties_of(reported(kind=object, complex=1j)) == {"kind": "<class 'object'>", "complex": "1j"}


def test_tuples_and_sets_arrive_as_lists():
    """Containers arrive as lists; there is no more to plain data."""
    assert facts_of([(1, 2), {3}, frozenset([4])]) == [[1, 2], [3], [4]]


def test_an_object_next_to_a_surrogate_arrives_as_its_repr():
    """A text that must be escaped does not change what becomes of the objects beside it."""
    assert facts_of(["\ud800", 1j, (1, 2), b"x"]) == ["\\ud800", "1j", [1, 2], b"x"]


def test_an_integer_beyond_64_bits_arrives_as_text():
    """An integer that msgpack cannot hold does not end the rank that reports it."""
    assert properties_of(reported(hash=2**70)) == {"hash": str(2**70)}


def test_an_object_without_a_repr_does_not_end_the_rank():
    """A broken __repr__ is told of in the property, and not felt by the rank."""
    assert "Unspeakable" in properties_of(reported(broken=Unspeakable()))["broken"]


keys = anything | st.integers() | st.tuples(st.integers(0, 9), anything)
recordable = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | anything | st.binary(max_size=4) | st.complex_numbers(),
    lambda inner: st.lists(inner, max_size=3) | st.tuples(inner, inner) | st.dictionaries(keys, inner, max_size=3),
    max_leaves=6,
)


@settings(deadline=None, database=None, max_examples=100)
@given(recordable)
def test_whatever_a_test_records_can_be_sent(value):
    """No property of a test can keep its report from arriving."""
    assert "value" in properties_of(reported(value=value))


# --- partial and foreign frames


def test_a_message_may_come_byte_by_byte(pair):
    """A message is handed over with its last byte, and not before."""
    ours, theirs = pair
    message = wire.Collect(path="é" * 3)
    *first, last = frame(encode(message))
    for byte in first:
        ours.sock.send(bytes([byte]))
        assert theirs.receive_ready() == []
    ours.sock.send(bytes([last]))
    assert theirs.receive_ready() == [message]


class Trap:
    """An object that acts when it is unpickled."""

    sprung: typing.ClassVar[list[int]] = []

    def __reduce__(self):
        return (Trap.sprung.append, (1,))


FOREIGN = {
    "a pickle": pickle.dumps(Trap()),
    "a pickled message's name": pickle.dumps({"type": "Go"}),
    "nothing": b"",
    "a null": b"\xc0",
    "half a message": encode(wire.Collect(path="x"))[:-1],
    "a message and a half": encode(wire.Go()) * 2,
    "an unknown kind": msgspec.msgpack.encode({"type": "Launch"}),
    "no kind": msgspec.msgpack.encode({"path": "x"}),
    "a wrong field": msgspec.msgpack.encode({"type": "Collect", "path": 3}),
    "a missing field": msgspec.msgpack.encode({"type": "Collect"}),
    "a list": msgspec.msgpack.encode(["Go"]),
    "JSON": b'{"type": "Go"}',
}


@pytest.mark.parametrize("body", FOREIGN.values(), ids=FOREIGN)
def test_a_foreign_frame_is_an_error(pair, body):
    """What is no message of ours raises, and never becomes an object."""
    ours, theirs = pair
    ours.sock.sendall(frame(body))
    with pytest.raises(msgspec.DecodeError):
        theirs.receive()
    assert Trap.sprung == []


@quick
@given(st.binary(max_size=40))
def test_arbitrary_bytes_are_a_message_or_an_error(body):
    """A frame of any bytes is decoded into a message, or raises msgspec's error."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.sendall(frame(body))
        try:
            message = Channel(theirs).receive()
        except msgspec.DecodeError:
            return
        assert isinstance(message, wire.Message)


def test_an_unknown_field_is_ignored():
    """A newer version's additional field does no harm."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.sendall(frame(msgspec.msgpack.encode({"type": "Collect", "path": "a", "more": 1})))
        assert Channel(theirs).receive() == wire.Collect(path="a")


# --- ends


@pytest.mark.parametrize("rest", [b"", frame(encode(wire.Go()))[:-1], b"\x05\x00"], ids=["whole", "body", "size"])
def test_the_end_of_the_stream_is_closed(pair, rest):
    """The other end's leaving raises Closed, also in the middle of a frame."""
    ours, theirs = pair
    ours.sock.sendall(rest)
    ours.close()
    with pytest.raises(Closed):
        theirs.receive()


def test_the_end_of_the_stream_is_closed_for_a_ready_reader(pair):
    """receive_ready raises Closed, too, when nothing can come any more."""
    ours, theirs = pair
    ours.close()
    with pytest.raises(Closed):
        theirs.receive_ready()


def test_messages_before_the_end_are_still_received(pair):
    """What was sent before the end is received before Closed is raised."""
    ours, theirs = pair
    ours.send(wire.Go())
    ours.close()
    assert theirs.receive() == wire.Go()
    with pytest.raises(Closed):
        theirs.receive()


def test_sending_to_nobody_is_closed(pair):
    """A message to an end that has been closed raises Closed, and no other error of sockets."""
    ours, theirs = pair
    theirs.close()
    with pytest.raises(Closed):
        ours.send(wire.Go())


def test_closed_is_an_error_of_connections():
    """Callers who know nothing of ddpcheck may catch Closed as a ConnectionError."""
    assert issubclass(Closed, ConnectionError)


# --- size

LARGE = wire.Evidence(
    check="shard-partition",
    title="assert_shards_partition",
    where=CallSite(file="a.py", line=1, function="f"),
    facts={"prints": ["0123456789abcdef"] * 300_000},
)


def sending(channel, message):
    thread = threading.Thread(target=channel.send, args=(message,), daemon=True)
    thread.start()
    return thread


def test_a_large_message_arrives_whole(pair):
    """A message of 5 MB, far more than a socket buffers, arrives while it is still being sent."""
    ours, theirs = pair
    assert len(encode(LARGE)) > 5_000_000
    thread = sending(ours, LARGE)
    assert theirs.receive() == LARGE
    thread.join()


def test_a_large_message_arrives_piece_by_piece(pair):
    """A reader that takes what is there gets nothing until the message is complete, and then all of it."""
    ours, theirs = pair
    thread = sending(ours, LARGE)
    reads = 0
    while not (messages := theirs.receive_ready()):
        reads += 1
    assert reads > 10
    assert messages == [LARGE]
    thread.join()
