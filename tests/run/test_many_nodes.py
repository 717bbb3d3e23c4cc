"""Evidence that travels between nodes: strangers hold up nobody, and what did not come is known to be missing."""

from __future__ import annotations

import contextlib
import os
import socket
import threading
import time

import msgspec
import pytest
from msgspec.structs import replace

from ddpcheck.evidence import GOING, HEADER, OVER
from ddpcheck.run import many_nodes, node_link
from ddpcheck.run.many_nodes import Collector, Done, Hello, Piece, Sender
from ddpcheck.run.node_link import Link
from tests.report.verdicts import HELD

encode = msgspec.msgpack.Encoder().encode


@pytest.fixture(autouse=True)
def in_haste(monkeypatch):
    for module in (node_link, many_nodes):
        monkeypatch.setattr(module, "DEADLINE", 0.5)
    monkeypatch.setattr(many_nodes, "PERIOD", 0.01)
    monkeypatch.setattr(many_nodes, "AGAIN", 0.05)


@pytest.fixture
def collector(tmp_path):
    (tmp_path / "judge").mkdir()
    made = Collector(tmp_path / "judge", Collector.bound("localhost:29500"))
    yield made
    made._listener.close()


def until(true, seconds=10.0):
    """Wait for it."""
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end
        time.sleep(0.01)


def stranger(collector):
    """A connection of somebody who found the port."""
    host, port, _ = collector.address.rsplit(":", 2)
    return socket.create_connection((host, int(port)))


def node(collector, format=HEADER, sender=b"", host="b"):
    """A connection of a node, made by hand."""
    link = Link(stranger(collector), many_nodes.LONGEST)
    link.trust(collector.address.rpartition(":")[2], b"node", b"judge")
    link.send(encode(Hello(host, format, sender=sender)))
    return link


def evidence(tmp_path, data=b"records", status=OVER):
    """A node's folder with a file of evidence."""
    folder = tmp_path / "node"
    folder.mkdir(exist_ok=True)
    (folder / "b-1.evidence").write_bytes(HEADER + status + data)
    return folder


def travels(collector, tmp_path):
    """Whether evidence of another node comes, and the verdict goes back."""
    folder = evidence(tmp_path)
    sender = Sender(collector.address, folder)
    until(lambda: sender.reached)
    sender._last_look.set()
    until(lambda: collector.nodes)
    collector.wait(10)
    assert collector.cut_off == set()
    collector.tell(replace(HELD, command="its verdict"))
    told = sender.finish(10)
    assert told is not None
    assert told.command == "its verdict"
    assert sender.note == ""
    return (collector._folder / "b-1.evidence").read_bytes() == (folder / "b-1.evidence").read_bytes()


def test_evidence_travels(collector, tmp_path):
    """All of it, to the place where nodes meet and to no other, and the verdict comes back."""
    assert collector.address.startswith("127.0.0.1:")
    assert travels(collector, tmp_path)


@pytest.mark.parametrize(
    "said",
    [b"", b"GET / HTTP/1.1\r\n\r\n", b"x" * 64 + b"\xff" * 4, b"\0" * 4096],
    ids=["silent", "HTTP", "a huge length", "zeros"],
)
def test_strangers_hold_up_nobody(collector, tmp_path, said):
    """Whatever they send, or if they send nothing: others are heard meanwhile, and they are hung up on."""
    with contextlib.ExitStack() as stack:
        strangers = [stack.enter_context(stranger(collector)) for _ in range(3)]
        for one in strangers:
            one.sendall(said)
        assert travels(collector, tmp_path)
        for one in strangers:
            one.settimeout(10)
            with contextlib.suppress(ConnectionResetError):
                while one.recv(4096):
                    pass
    assert len(collector.nodes) == 1
    assert collector.notes == []


def test_strangers_keep_no_node_out(collector, tmp_path, monkeypatch):
    """Of more than a run may have to do with, those are hung up on that have had most time: a node needs little."""
    for module in (node_link, many_nodes):
        monkeypatch.setattr(module, "DEADLINE", 60.0)
    with contextlib.ExitStack() as stack:
        strangers = [stack.enter_context(stranger(collector)) for _ in range(200)]
        until(lambda: len(collector._strangers) == many_nodes.STRANGERS)
        strangers[0].settimeout(10)
        with contextlib.suppress(ConnectionResetError):
            while strangers[0].recv(4096):
                pass
        began = time.monotonic()
        assert travels(collector, tmp_path)
        assert time.monotonic() - began < 30


def test_no_room_for_a_thread_is_no_end(collector, tmp_path, monkeypatch):
    """The next node is taken all the same."""
    start, failed = threading.Thread.start, []

    def without_room(thread):
        if thread.name == "ddpcheck-node" and not failed:
            failed.append(thread)
            raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", without_room)
    with stranger(collector):
        until(lambda: failed)
        assert travels(collector, tmp_path)


def test_what_nodes_say_is_bounded(collector):
    """Whatever number of them has another version, and however long its name is."""
    for number in range(many_nodes.NOTES + 5):
        link = node(collector, b"0", host=f"host-{number}")
        link.receive()
        link.close()
    assert len(collector.notes) == many_nodes.NOTES
    link = node(collector, host="h" * 256)
    with pytest.raises(EOFError):
        link.receive()
    link.close()
    assert collector.nodes == []


def test_a_message_that_is_too_long_ends_the_connection(collector):
    """Also of who knows the key: nobody reserves what a length promises."""
    link = node(collector)
    link._socket.sendall(b"\xff\xff\xff\xff")
    until(lambda: collector.nodes and collector.nodes[0].gone)
    link.close()


def test_a_node_that_dies_leaves_evidence_that_is_cut_off(collector):
    """It is not waited for, and what it sent is known to be a part."""
    link = node(collector)
    link.send(encode(Piece("b-1.evidence", 0, HEADER + GOING + b"some")))
    until(lambda: collector.cut_off)
    link.close()
    began = time.monotonic()
    collector.wait(30)
    assert time.monotonic() - began < 10
    assert collector.cut_off == {"b-1.evidence"}


def test_a_node_that_comes_back_sends_all_again(collector):
    """Over what is there: nothing is ever shorter than before."""
    first = node(collector)
    first.send(encode(Piece("b-1.evidence", 0, HEADER + GOING + b"some and mo")))
    until(lambda: collector.cut_off)
    first.close()
    again = node(collector)
    again.send(encode(Piece("b-1.evidence", 0, HEADER + GOING + b"some")))
    until(lambda: len(collector.nodes) == 2 and collector.nodes[1].names)
    assert (collector._folder / "b-1.evidence").read_bytes().endswith(b"some and mo")
    again.send(encode(Piece("b-1.evidence", len(HEADER) + 5, b" and more")))
    again.send(encode(Done()))
    until(lambda: collector.cut_off == set())
    assert (collector._folder / "b-1.evidence").read_bytes().endswith(b"some and more")
    again.close()


def test_a_node_that_does_not_listen_holds_up_nobody(collector):
    """The others are asked to end all the same."""
    deaf = node(collector)
    until(lambda: collector.nodes)
    began = time.monotonic()
    collector.tell(replace(HELD, notes=("x" * (1 << 24),)))
    assert time.monotonic() - began < 10
    deaf.close()


@pytest.mark.parametrize(
    ("piece", "why"),
    [
        (Piece("a-1.evidence", 0, b"other"), "another node"),
        (Piece("local.evidence", 0, b"other"), "File exists"),
        (Piece("link.evidence", 0, b"other"), "File exists"),
        (Piece("b-1.evidence", 1 << 40, b"x"), "has gaps"),
        (Piece("b-1.evidence", -1, b"x"), "has gaps"),
        (Piece("b-1.evidence", 0, bytes(2000)), "--evidence-limit"),
    ],
    ids=["another's", "local", "link", "sparse", "negative", "long"],
)
def test_a_node_writes_its_own_files_alone_and_no_more_than_it_may(collector, tmp_path, piece, why):
    """What another node or this one has written stays; and what is left out is known to be missing, and told of."""
    collector._longest = 1000
    (collector._folder / "local.evidence").write_bytes(b"local")
    (collector._folder / "link.evidence").symlink_to(tmp_path / "elsewhere")
    first = node(collector)
    first.send(encode(Piece("a-1.evidence", 0, b"first")))
    first.send(encode(Done()))
    until(lambda: collector.nodes and collector.nodes[0].done)
    hostile = node(collector, sender=b"another")
    hostile.send(encode(Piece("b-2.evidence", 0, b"own")))
    hostile.send(encode(piece))
    hostile.send(encode(Done()))
    until(lambda: len(collector.nodes) == 2 and collector.nodes[1].done)
    found = {path.name: path.read_bytes() for path in collector._folder.iterdir() if path.is_file()}
    assert found.pop("b-1.evidence", b"") == b""
    assert found == {"a-1.evidence": b"first", "local.evidence": b"local", "b-2.evidence": b"own"}
    assert not (tmp_path / "elsewhere").exists()
    assert collector.cut_off - {"b-1.evidence"} == {"b-2.evidence"}
    (note,) = collector.notes
    assert why in note
    for link in (first, hostile):
        link.close()


def test_other_nodes_leave_room_on_the_disk(collector, monkeypatch):
    """For the program, which may need it."""
    full = os.statvfs_result((4096, 4096, 1000, 49, 49, 0, 0, 0, 0, 255))
    monkeypatch.setattr(many_nodes.os, "fstatvfs", lambda descriptor: full)
    link = node(collector)
    link.send(encode(Piece("b-1.evidence", 0, b"some")))
    until(lambda: collector.notes)
    assert collector.notes == ["Not all evidence of b could be kept here: the disk is nearly full."]
    assert collector.cut_off == {"b-1.evidence"}
    link.close()


def test_a_node_sends_files_alone(collector, tmp_path):
    """Not what its program has put beside them, however large that says it is."""
    folder = evidence(tmp_path)
    os.mkfifo(folder / "pipe.evidence")
    (folder / "link.evidence").symlink_to("/dev/zero")
    (folder / "long.evidence").touch()
    os.truncate(folder / "long.evidence", 1 << 40)
    sender = Sender(collector.address, folder, limit=1000)
    sender._last_look.set()
    until(lambda: collector.nodes and collector.nodes[0].done)
    assert collector.nodes[0].names == {"b-1.evidence"}
    sender._told.set()
    collector.nodes[0].link.close()


def test_names_that_leave_the_folder_are_passed_over(collector, tmp_path):
    """A node writes evidence, and nothing else."""
    link = node(collector)
    for name in ("../b-1.evidence", "b-1.txt", "b\0.evidence", ".evidence"):
        link.send(encode(Piece(name, 0, b"x")))
    link.send(encode(Done()))
    until(lambda: collector.nodes and collector.nodes[0].done)
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []
    link.close()


def test_another_version_says_so_at_both_ends(collector, tmp_path, monkeypatch):
    """In one sentence, which names what to do."""
    folder = evidence(tmp_path)
    older = many_nodes._encode
    monkeypatch.setattr(many_nodes, "_encode", lambda m: older(replace(m, format=b"0") if isinstance(m, Hello) else m))
    sender = Sender(collector.address, folder)
    assert sender.finish(10) is None
    assert sender.note == "The node of rank 0 runs another version of ddpcheck; install the same one on all nodes."
    assert "another version of ddpcheck runs there" in collector.notes[0]


def started_at(tmp_path, judge, *others):
    """A judging node and others, started at these times: who shows the report by the first, and by the others."""
    (tmp_path / "judge").mkdir()
    collector = Collector(tmp_path / "judge", Collector.bound("localhost"), judge)
    senders = [Sender(collector.address, evidence(tmp_path), began) for began in others]
    for sender in senders:
        until(lambda sender=sender: sender.reached)
        sender._last_look.set()
    until(lambda: len(collector.nodes) == len(others))
    collector.wait(10)
    return [collector.tell(HELD), *(sender.shown_by for sender in senders if sender.finish(10) == HELD)]


def test_the_node_that_was_started_first_shows_the_report(tmp_path):
    """It alone; the others, the judging one among them, say which it is."""
    shown = started_at(tmp_path, 1000.0, 1003.0, 990.0, 995.0)
    name = f"the node that was started first ({socket.gethostname()})"
    assert shown == [name, name, "", name]


def test_of_nodes_that_were_started_together_rank_0s_shows_the_report(tmp_path):
    """Some tenths of a second are nobody's choice."""
    assert started_at(tmp_path, 1000.0, 999.8, 1003.0) == ["", "the node of rank 0", "the node of rank 0"]


def test_of_tasks_that_of_rank_0_shows_the_report(tmp_path):
    """Whichever was first: a launcher has started them all."""
    assert started_at(tmp_path, 0.0, 0.0) == ["", "the task of rank 0"]


def test_a_first_node_that_takes_no_verdict_leaves_the_report_to_rank_0s(tmp_path):
    """Somebody shows it."""
    (tmp_path / "judge").mkdir()
    collector = Collector(tmp_path / "judge", Collector.bound("localhost"), 1000.0)
    link = Link(stranger(collector), many_nodes.LONGEST)
    link.trust(collector.address.rpartition(":")[2], b"node", b"judge")
    link.send(encode(Hello("b", HEADER, 900.0)))
    until(lambda: collector.nodes)
    assert collector.tell(HELD) == ""
    link.close()


def test_a_judge_that_cannot_be_reached_is_not_waited_for(tmp_path):
    """The watching thread goes on meanwhile, and the node says why it judges for itself."""
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        began = time.monotonic()
        sender = Sender(f"127.0.0.1:{nobody.getsockname()[1]}:key", evidence(tmp_path))
        assert time.monotonic() - began < 0.5
        assert sender.finish(60) is None
        assert time.monotonic() - began < 10
    assert sender.note.startswith("The node that judges could not be reached at 127.0.0.1")


# --- where to listen


@pytest.mark.parametrize("endpoint", ["localhost:29500", "127.0.0.1:0", "localhost", ""])
def test_agents_of_one_machine_meet_on_it(endpoint):
    """Nobody else can reach them."""
    assert node_link.interface(endpoint) == "127.0.0.1"


def test_a_name_that_is_a_machines_own_is_no_reason_to_listen_there(monkeypatch):
    """Where /etc/hosts has a loopback address for it, the address is the one towards the network."""
    monkeypatch.setattr(node_link, "_towards", lambda host: {"trainer0": "127.0.1.1", "192.0.2.1": "10.0.0.7"}[host])
    assert node_link.interface("trainer0:29500") == "10.0.0.7"


@pytest.mark.parametrize(("endpoint", "host"), [("[::1]:29500", "::1"), ("a:1,b:2", "a"), ("10.0.0.1", "10.0.0.1")])
def test_an_endpoint_has_a_host(monkeypatch, endpoint, host):
    """With a port or without, and of several the first."""
    asked = []
    monkeypatch.setattr(node_link, "_towards", lambda host: asked.append(host) or "10.0.0.7")
    assert node_link.interface(endpoint) == "10.0.0.7"
    assert asked == [host]
