"""The timeline of all ranks: what they did, who waited for whom, and where the findings are."""

from __future__ import annotations

import math

import msgspec
import pytest

from ddpcheck import evidence as ev
from ddpcheck.judging.evidence_folder import Folder
from ddpcheck.judging.membership import worlds
from ddpcheck.judging.world import Rank, Stretch, World
from ddpcheck.report.page.packed_timeline import packed
from ddpcheck.report.timeline.made_from_evidence import in_folder, timeline
from ddpcheck.report.timeline.timeline import COLLECTIVE, KINDS, TITLES
from tests.report.timeline.made import finding, made, of_kind, process, world
from tests.simulated_evidence import Training, records, write


def test_every_event_is_in_its_lane():
    """Forwards, backwards, steps, batches, calls and saves, each as often as there were."""
    found = made(Training(ranks=2, steps=100, epoch=50))
    assert len(KINDS) == len(TITLES)
    assert [lane.title for lane in found.lanes] == ["rank 0", "rank 1"]
    for kind in ("forward", "backward", "step", "data"):
        assert len(of_kind(found, 0, kind)) == len(of_kind(found, 1, kind)) == 100
    assert [len(of_kind(found, lane, "collective")) for lane in (0, 1)] == [103, 103]  # a constructor, two barriers
    assert [len(of_kind(found, lane, "save")) for lane in (0, 1)] == [2, 0]
    assert [stretch.text for stretch in found.lanes[0].passes] == [
        "pass 0 of loader 0, epoch 0",
        "pass 1 of loader 0, epoch 1",
    ]
    sums = found.lanes[0].sums
    assert (sums.steps, sums.batches, sums.samples) == (100, 100, 800)
    assert sums.seconds["forward"] == pytest.approx(0.3, rel=0.1)
    assert found.end == max(lane.end for lane in found.lanes)
    starts = list(found.lanes[0].events.starts)
    assert starts == sorted(starts)
    assert not found.alone


def test_steps_and_calls_are_numbered_and_have_their_lines():
    """A step is known by its number, a call by that of its group; both by the line that has led to them."""
    found = made(Training(steps=10))
    steps = [event for event in found.lanes[1].events if KINDS[event.kind] == "step"]
    assert [event.number for event in steps] == list(range(10))
    place = found.places[found.labels[steps[0].label].place]
    assert (place.file, place.line, place.text) == ("train.py", 6, "optimizer.step()")
    calls = [event for event in found.lanes[1].events if event.kind == COLLECTIVE]
    assert [event.number for event in calls] == list(range(1, 13))
    assert found.labels[calls[-1].label].text == "barrier()"
    assert found.groups[found.labels[calls[-1].label].group].lanes == (0, 1)


def test_the_last_to_come_is_whom_the_others_waited_for():
    """A rank with slow forwards is waited for by all others, at the line of the backward."""
    found = made(Training(ranks=4, steps=50, late=2, lateness=0.01))
    assert {one.late for one in found.waits[:3]} == {2}
    assert {one.lane for one in found.waits[:3]} == {0, 1, 3}
    assert found.waits[0].seconds == pytest.approx(0.5, rel=0.15)
    assert found.waits[0].times == 50
    assert found.places[found.waits[0].place].text == "loss.backward()"
    assert found.lanes[2].sums.caused > 1.2
    assert found.lanes[2].sums.waited < 0.1
    assert found.lanes[0].sums.waited_in_backward == pytest.approx(found.waits[0].seconds, rel=0.2)


def test_nobody_waits_where_all_come_at_once():
    """What the call itself takes is not waiting."""
    found = made(Training(ranks=4, steps=50))
    assert all(lane.sums.waited_in_backward < 0.05 for lane in found.lanes)


def test_clocks_of_hosts_are_put_beside_each_other():
    """Monotonic clocks that began a thousand seconds apart, by the calls that end together; a note says so."""
    found = made(Training(ranks=4, steps=50, hosts=2, late=2))
    apart = [abs(a - b) for a, b in zip(of_kind(found, 0, "step"), of_kind(found, 1, "step"), strict=True)]
    assert max(apart) < 5_000
    assert "2 hosts" in found.notes[0]
    assert "shared collectives" in found.notes[0]
    assert found.waits[0].late == 2


def test_a_wrong_time_of_day_makes_no_difference():
    """The calls outrank it."""
    size = Training(ranks=2, steps=50, hosts=2)
    ranks = []
    for number in range(2):
        written = [
            msgspec.structs.replace(one, wall=one.wall + 30 * number)
            if isinstance(one, ev.Began) else one
            for one in records(size, number)
        ]  # fmt: skip
        made_of = process(f"p{number}", written)
        ranks.append(Rank(Stretch(made_of, made_of.last(ev.Joined), 0, math.inf)))
    found = timeline([World(ranks, 2)], ())
    apart = [abs(a - b) for a, b in zip(of_kind(found, 0, "step"), of_kind(found, 1, "step"), strict=True)]
    assert max(apart) < 5_000


def test_a_finding_is_at_its_step():
    """On the ranks that it names, where that step began, and nowhere else."""
    found = made(Training(ranks=3, steps=40), [finding(step=12)])
    (mark,) = found.marks
    assert (mark.finding, mark.lane) == (0, 1)
    assert mark.at == of_kind(found, 1, "step")[12]


def test_a_finding_without_a_step_is_at_its_line():
    """The first time that a rank came there; where it stopped the program, the last time."""
    saves = finding(line=7, check="checkpoint-atomic-save", ranks=(0,), step=None)
    hangs = finding(line=8, check="no-hang", ranks=(0,), step=None)
    found = made(Training(ranks=2, steps=100, epoch=50), [saves, hangs])
    assert [mark.finding for mark in found.marks] == [0, 1]
    assert found.marks[0].at == of_kind(found, 0, "save")[0]
    assert found.marks[1].at >= of_kind(found, 0, "collective")[-1]


def test_a_finding_of_a_call_is_at_that_call():
    """Judges name the call at which ranks part among a finding's links."""
    of_call = finding(line=5, check="collective-order", ranks=(0,), step=None, links=("call world 8",))
    found = made(Training(ranks=2, steps=20), [of_call])
    assert found.marks[0].at == of_kind(found, 0, "collective")[7]


def test_a_finding_that_is_not_on_record_has_no_mark():
    """Nothing is made up."""
    assert made(Training(steps=5), [finding(line=99, step=None), finding(ranks=(7,))]).marks == ()


def test_a_deadlock():
    """The calls that go on to the end, which have no counterpart on the rank that never came."""
    found = made(Training(ranks=3, steps=20, hangs=1))
    assert {one.lane for one in found.alone} == {0, 2}
    assert {one.lacking for one in found.alone} == {(1,)}
    for lane in (0, 2):
        last = max(found.lanes[lane].events, key=lambda event: event.start)
        assert last.kind == COLLECTIVE
        assert last.start + last.length == found.lanes[lane].end
        assert found.lanes[lane].moments[-1].kind == "stuck"
    assert all(moment.kind != "stuck" for moment in found.lanes[1].moments)


def test_what_a_rank_called_in_another_ones_place():
    """The first number under which the ranks made different calls; what follows is not compared any more."""
    size = Training(ranks=2, steps=6)
    ranks = []
    for number in range(2):
        written = list(records(size, number))
        if number:
            written = [
                ev.Call(n=one.n, at=one.at, op="broadcast", group="world", number=one.number, detail="", site=8)
                if isinstance(one, ev.Call) and one.number >= 4 else one
                for one in written
            ]  # fmt: skip
        made_of = process(f"p{number}", written)
        ranks.append(Rank(Stretch(made_of, made_of.last(ev.Joined), 0, math.inf)))
    found = timeline([World(ranks, 2)], ())
    assert [(one.lane, one.number, one.lacking) for one in found.alone] == [(0, 4, (1,)), (1, 4, (0,))]


def test_a_long_run_is_thinned_out():
    """Around the findings and in the last part every event is there; the others are merged, and none is lost."""
    size = Training(ranks=2, steps=3_000, epoch=1_000)
    whole, thin = made(size, [finding(step=700)]), made(size, [finding(step=700)], most=8_000)
    for lane in (0, 1):
        events = list(thin.lanes[lane].events)
        assert len(events) < 8_000
        assert sum(event.times for event in events) == len(whole.lanes[lane].events)
        assert sum(event.busy for event in events) == sum(event.length for event in whole.lanes[lane].events)
    one_by_one = {event.number for event in thin.lanes[1].events if KINDS[event.kind] == "step" and event.times == 1}
    assert set(range(2_900, 3_000)) | set(range(690, 711)) <= one_by_one
    other = {event.number for event in thin.lanes[0].events if KINDS[event.kind] == "step" and event.times == 1}
    assert set(range(690, 711)) <= other  # to be compared with
    assert thin.lanes[1].sums == whole.lanes[1].sums
    assert thin.waits == whole.waits
    assert [mark.at for mark in thin.marks] == [mark.at for mark in whole.marks]
    assert any("merged" in note for note in thin.notes)
    assert not whole.notes


def test_evidence_in_a_folder_is_gone_through_once_more(tmp_path):
    """The same as of what is in memory: what a judge has dropped can be shown all the same."""
    size = Training(ranks=2, steps=30)
    write(tmp_path, size)
    folder = Folder(tmp_path)
    folder.read()
    there = worlds(folder.processes.values())
    for one in folder.processes.values():
        one.records.clear()
    found = timeline(there, folder.processes.values(), in_folder(tmp_path), [finding(step=3)])
    same = made(size, [finding(step=3)])
    assert [list(lane.events) for lane in found.lanes] == [list(lane.events) for lane in same.lanes]
    assert found.marks == same.marks


def test_files_that_cannot_be_read_any_more(tmp_path):
    """A rank without evidence has no lane, a torn file goes as far as it goes, and garbage is passed over."""
    size = Training(ranks=3, steps=30)
    files = write(tmp_path, size)
    folder = Folder(tmp_path)
    folder.read()
    there = worlds(folder.processes.values())
    files[0].unlink()
    files[1].write_bytes(files[1].read_bytes()[:4000] + b"garbage")
    found = timeline(there, folder.processes.values(), in_folder(tmp_path))
    assert [lane.rank for lane in found.lanes] == [1, 2]
    assert 0 < len(found.lanes[0].events) < len(found.lanes[1].events)


def test_evidence_of_some_ranks_alone():
    """The lanes of those; nobody is said to have waited for who is not there."""
    found = made(Training(ranks=4, steps=20, only=(1, 3)))
    assert [lane.rank for lane in found.lanes] == [1, 3]
    assert found.alone == ()


@pytest.mark.parametrize("ranks", [1, 2])
def test_a_program_without_a_world(ranks):
    """Ranks that were started, and have joined nothing: what they did is shown."""
    started = [process(f"p{n}", records(Training(ranks=ranks, steps=5), n)) for n in range(ranks)]
    found = timeline([], started)
    assert [lane.rank for lane in found.lanes] == list(range(ranks))
    assert len(of_kind(found, 0, "forward")) == 5


@pytest.mark.parametrize("length", [-7, -(1 << 53), 1 << 53])
def test_what_took_an_impossible_time(length):
    """It is there, and the page takes it."""
    rank = process("p0", records(Training(ranks=1, steps=5), 0))
    rank.add([ev.Spans(n=1000, at=9.0, base=9.0, packed=[0, 0, length, 0, 1])])
    found = timeline([], [rank])
    assert len(of_kind(found, 0, "forward")) == 6
    assert min(event.length for event in found.lanes[0].events) >= 0
    assert packed(found)


def test_nothing_at_all():
    """No processes, no lanes."""
    found = timeline([], ())
    assert (found.lanes, found.end, found.events) == ((), 0, 0)


def test_a_restart_has_lanes_of_its_own():
    """The calls of one group are not those of another one, whatever their numbers."""
    first, second = world(Training(ranks=2, steps=5)), world(Training(ranks=2, steps=8))
    found = timeline([first, second], ())
    assert [lane.title for lane in found.lanes] == [
        "rank 0, group 1", "rank 1, group 1", "rank 0, group 2", "rank 1, group 2",
    ]  # fmt: skip
    assert {group.lanes for group in found.groups} == {(0, 1), (2, 3)}
    assert found.alone == ()


def test_messages_between_two_ranks_belong_together():
    """Counted by the pair, and by their tags; a receive has its send."""
    begun = [record for record in records(Training(steps=0), 0) if isinstance(record, (ev.Began, ev.Site, ev.Joined))]
    ranks = []
    for number, (op, peer) in enumerate((("send", 1), ("recv", 0))):
        joined = next(record for record in records(Training(steps=0), number) if isinstance(record, ev.Joined))
        call = ev.Call(n=50, at=11.0, op=op, group="world", number=0, detail="tag 0", site=5, peer=peer)
        made_of = process(f"p{number}", [*begun[:-1], joined, call])
        ranks.append(Rank(Stretch(made_of, joined, 0, math.inf)))
    found = timeline([World(ranks, 2)], ())
    (group,) = found.groups
    assert group.lanes == (0, 1)
    assert found.alone == ()
