"""The files of evidence: whatever is in them, what was written before is read, and what is missing is reported."""

from __future__ import annotations

import math
import os
import random
import time
import zlib

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ddpcheck import evidence as ev
from ddpcheck.judging.evidence_folder import SUFFIX, Folder
from ddpcheck.verdict.reader_notes import unseen

RECORDS = [
    ev.Began(n=0, at=0.0, pid=7, parent=1, host="h", node=0, argv=["a"], folder="/", wall=0.0, rank=1),
    *(ev.Pulse(n=n, at=n / 10, site=n, doing="work" * n, pending=None) for n in range(1, 6)),
]
FRAMES = [ev.frame(record) for record in RECORDS]
WHOLE = b"".join(FRAMES)


def fed(*pieces):
    """What a reader yields of these pieces, and the reader."""
    reader = ev.Reader()
    return [record for piece in pieces for record in reader.feed(piece)], reader


@given(st.data())
@settings(max_examples=300, deadline=None)
def test_any_piece_is_as_good_as_another(data):
    """Records are those that were written, wherever the file was looked at in between."""
    cuts = sorted(data.draw(st.lists(st.integers(0, len(WHOLE)), max_size=5)))
    pieces = [WHOLE[a:b] for a, b in zip([0, *cuts], [*cuts, len(WHOLE)], strict=True)]
    records, reader = fed(*pieces)
    assert records == RECORDS
    assert (reader.damaged, reader.torn) == (0, False)


@given(st.integers(0, len(WHOLE)))
@settings(max_examples=200, deadline=None)
def test_a_file_that_is_cut_off_loses_its_end_alone(length):
    """Every record that was whole before the cut is read."""
    records, reader = fed(WHOLE[:length])
    whole = sum(length >= sum(map(len, FRAMES[: n + 1])) for n in range(len(FRAMES)))
    assert records == RECORDS[:whole]
    assert reader.torn == (length not in {sum(map(len, FRAMES[:n])) for n in range(len(FRAMES) + 1)})


@given(st.binary(max_size=200), st.integers(0, len(FRAMES)), st.integers(0, 8))
@settings(max_examples=500, deadline=None)
def test_any_bytes_between_records_lose_none(noise, place, cut):
    """Nothing raises, and every record before and behind the noise is read."""
    data = b"".join(FRAMES[:place]) + noise + b"".join(FRAMES[place:])
    records, reader = fed(data[:cut], data[cut:])
    assert records == RECORDS
    if place < len(FRAMES):
        assert (reader.damaged, reader.torn) == (len(noise), False)
    else:
        assert reader.torn == bool(noise)


@given(st.integers(0, len(WHOLE) - 1), st.integers(1, 255))
@settings(max_examples=500, deadline=None)
def test_a_byte_that_is_wrong_loses_its_own_record(place, flip):
    """No record is read as something else, and no other is lost: a length that lies swallows nothing."""
    data = WHOLE[:place] + bytes([WHOLE[place] ^ flip]) + WHOLE[place + 1 :]
    own = next(n for n in range(len(FRAMES)) if place < sum(map(len, FRAMES[: n + 1])))
    records, reader = fed(data)
    assert records == RECORDS[:own] + RECORDS[own + 1 :]
    assert bool(reader.damaged) or reader.torn


@given(st.binary(max_size=400))
@settings(max_examples=300, deadline=None)
def test_any_bytes_are_no_record(data):
    """What was never a record is none."""
    assert fed(data)[0] == []


@pytest.mark.parametrize(
    "damage",
    [
        bytes(8 << 20),
        (b"\xff\xff\x7f\x00____\x92\xa4Call" * (1 << 19)),  # each claims to be a frame of 8 MB
        (b"\xff\xff\xff\x03____\x92\xa4Call" * (1 << 19)),  # of 64 MB, which are not there yet
        FRAMES[1][:-1] * 100_000,
    ],
    ids=["zeros", "claims", "claims without an end", "torn records"],
)
def test_damage_costs_no_more_the_more_there_is_of_it(damage):
    """It is searched once, in whatever pieces it comes; and what follows it is read."""
    reader = ev.Reader()
    began = time.process_time()
    for start in range(0, len(damage), 1 << 14):
        assert not [*reader.feed(damage[start : start + (1 << 14)])]
    assert reader.torn
    assert [*reader.feed(WHOLE)] == RECORDS
    assert (reader.damaged, reader.torn) == (len(damage), False)
    assert time.process_time() - began < 30  # of the processor's: searched anew with each piece, it is minutes


def test_texts_may_have_surrogates():
    """Names of files and messages need not be UTF-8: they are written with escapes."""
    raised = ev.Raised(n=1, at=0.0, kind="E", message="b\udcff", text="b\udcff", site=0, lost_peer=False)
    (record,), _ = fed(ev.frame(raised))
    assert (record.kind, record.message) == ("E", "b\\udcff")


JOINED = ev.Joined(n=1, at=0.0, rank=0, world_size=2, token="t", backend="gloo", local_rank=0, site=0)
ENDED = ev.ChildEnded(n=1, at=0.0, pid=8, code=None, signal=9)
MESH = ev.Mesh(n=1, at=0.0, mesh=0, names=(), shape=(2, 1), ranks=(0, 1))


@pytest.mark.parametrize(
    ("record", "field", "claims"),
    [
        (RECORDS[1], "at", [math.inf, -math.inf, math.nan, 1e308]),
        (RECORDS[0], "wall", [math.inf, math.nan, 1e308]),
        (RECORDS[0], "pid", [-1, 1 << 31, 1 << 63]),
        (RECORDS[1], "since", [math.inf, math.nan, 1e308]),
        (JOINED, "world_size", [-1, 0, 1 << 31, 1 << 63]),
        (JOINED, "rank", [-1, 2, 1 << 31]),
        (ENDED, "signal", [-1, 65, 1 << 31, 1 << 63]),
        (ev.Signalled(n=1, at=0.0, signal=2), "signal", [1 << 31]),
        (ev.SentSignal(n=1, at=0.0, pid=-8, signal=2, site=0), "signal", [1 << 31]),
        (ev.Silent(n=1, at=0.0, pid=8, seconds=1.0), "seconds", [math.inf, math.nan]),
        (ev.Spans(n=1, at=0.0, base=0.0, packed=[0, 1, 1, 0, 1]), "packed", [[0, 1, 1 << 63, 0, 1]]),
        (ev.JudgedBy(n=1, at=0.0, address="::1:80:a"), "address", ["", "here", "here:port:key", "here:80"]),
        (MESH, "shape", [[1 << 31], [2, 0], [-1, -2, 1 << 31], [-2, -1]]),
        (MESH, "ranks", [[0, -1], [0, 1 << 31]]),
    ],
    ids=lambda value: value if isinstance(value, str) else type(value).__name__,
)
def test_what_no_rank_can_have_written_is_no_record(record, field, claims):
    """Whatever its checksum: it is damage, and no judge meets it."""
    assert fed(ev.frame(record))[0] == [record]
    for claim in claims:
        fields = {name: getattr(record, name) for name in record.__struct_fields__}
        body = msgspec.msgpack.encode([type(record).__name__, *{**fields, field: claim}.values()])
        length = len(body).to_bytes(4, "little")
        data = length + zlib.crc32(body, zlib.crc32(length)).to_bytes(4, "little") + body
        records, reader = fed(data + FRAMES[2])
        assert (records, reader.damaged) == ([RECORDS[2]], len(data)), claim


# --- a folder of them


@pytest.fixture
def folder(tmp_path):
    return Folder(tmp_path)


def written(folder, data=WHOLE, header=ev.HEADER + ev.GOING, name="h-7-1.evidence"):
    path = folder.path / name
    path.write_bytes(header + data)
    folder.read()
    return path


def only(folder):
    (process,) = folder.processes.values()
    return process


def test_a_damaged_record_is_told_of_and_the_rest_is_read(folder):
    """The note says whose, and how much."""
    path = written(folder)
    with path.open("ab") as file:
        file.write(b"\x05\x00\x00\x00\xc1\xc1\xc1\xc1\xc1" + ev.frame(RECORDS[1]))
    folder.read()
    assert only(folder).records == [*RECORDS, RECORDS[1]]
    assert only(folder).incomplete
    (note,) = unseen([], folder.processes.values())
    assert note.startswith("The evidence of rank 1 is damaged: 9 bytes")


@pytest.mark.parametrize(
    ("byte", "words"),
    [(ev.FULL, "is the disk full?"), (ev.LOST, "could not be reached"), (ev.GOING, None), (ev.OVER, None)],
)
def test_that_recording_stopped_is_told(folder, byte, words):
    """By the byte behind the header; a process that was killed, or has ended, has said what it could."""
    path = written(folder)
    with path.open("r+b") as file:
        file.seek(len(ev.HEADER))
        file.write(byte)
    folder.read()
    notes = unseen([], folder.processes.values())
    if words is None:
        assert (notes, only(folder).incomplete) == ((), False)
    else:
        (note,) = notes
        assert note.startswith("The evidence of rank 1 stopped early: ")
        assert words in note
        assert only(folder).incomplete


@pytest.mark.parametrize("kind", ["pipe", "device", "link", "folder"])
def test_what_is_no_file_is_told_of_and_not_waited_for(folder, tmp_path_factory, kind):
    """A program may put anything into the folder; what its processes have written counts all the same."""
    odd = folder.path / f"odd{SUFFIX}"
    elsewhere = tmp_path_factory.mktemp("elsewhere") / "h-8-1.evidence"
    elsewhere.write_bytes(ev.HEADER + ev.GOING + WHOLE)
    {
        "pipe": lambda: os.mkfifo(odd),
        "device": lambda: odd.symlink_to("/dev/zero"),
        "link": lambda: odd.symlink_to(elsewhere),
        "folder": odd.mkdir,
    }[kind]()
    path = written(folder)
    assert folder.processes[path.name].records == RECORDS
    assert folder.processes[odd.name].records == []
    assert "cannot be read" in folder.processes[odd.name].gap
    assert len(unseen([], folder.processes.values())) == 1


def test_a_file_is_no_longer_than_its_process_may_write(tmp_path):
    """One that claims to be has a size, and takes neither time nor memory."""
    folder = Folder(tmp_path, limit=1 << 20)
    path = written(folder)
    os.truncate(path, 1 << 40)
    assert folder.read() is False
    assert only(folder).records == RECORDS
    assert "longer than" in only(folder).gap


def test_another_version_is_told_in_a_sentence(folder):
    """Its records may mean something else: none is read."""
    written(folder, header=ev.FORMAT + b"1.")
    assert only(folder).records == []
    (note,) = unseen([], folder.processes.values())
    assert "another version of ddpcheck" in note


def test_a_file_that_was_removed_or_cut_keeps_what_was_read(folder):
    """What is written behind the cut is read, too; and that something is missing is reported."""
    path = written(folder)
    os.truncate(path, len(ev.HEADER) + 30)
    folder.read()
    with path.open("ab") as file:
        file.write(FRAMES[1])
    folder.read()
    assert only(folder).records == [*RECORDS, RECORDS[1]]
    assert "cut off" in only(folder).gap
    path.unlink()
    folder.read()
    assert only(folder).records == [*RECORDS, RECORDS[1]]
    assert "removed" in only(folder).gap


def test_no_history_of_a_file_raises(tmp_path):
    """Whatever is done to files between two looks, what was read stays read."""
    for seed in range(150):
        draw = random.Random(seed)
        here = tmp_path / str(seed)
        here.mkdir()
        folder = Folder(here)
        path = here / "h-7-1.evidence"
        for _ in range(8):
            before = [list(process.records) for process in folder.processes.values()]
            _do_something_to(path, draw)
            folder.read()
            after = [process.records for process in folder.processes.values()]
            assert all(now[: len(then)] == then for then, now in zip(before, after, strict=False)), seed
            unseen([], folder.processes.values())


def _do_something_to(path, draw):
    deed = draw.randrange(7)
    size = path.stat().st_size if path.is_file() else 0
    if deed == 0:
        path.unlink(missing_ok=True)
    elif deed == 1 and size:
        os.truncate(path, draw.randrange(size))
    elif deed == 2 and size:
        with path.open("r+b") as file:
            file.seek(draw.randrange(size))
            file.write(draw.randbytes(3))
    elif deed == 3:
        path.write_bytes(ev.HEADER + ev.GOING)
    else:
        with path.open("ab") as file:
            file.write(draw.choice([*FRAMES, draw.randbytes(20), FRAMES[1][:11]]))
