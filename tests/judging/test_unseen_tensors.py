"""What was not looked at is not compared, is not counted, and is reported."""

from __future__ import annotations

from typing import Any

import pytest

from ddpcheck import evidence as ev
from ddpcheck.judging import step_alignment
from ddpcheck.verdict import judges, reader_notes
from tests.judging.judged import run_judged
from tests.judging.written import Made, step, world, wrapped


def digests(text: str) -> bytes:
    """One tensor for each letter; one that was not looked at for a question mark."""
    return b"".join(ev.UNSEEN if letter == "?" else letter.encode() * ev.WIDTH for letter in text)


def optimizer(values: str, unseen: str = "", wrapper: int | None = None, **more: Any) -> Made:
    """An optimizer of one parameter for each value; those of question marks are of the kind ``unseen``."""
    parameters = [
        ev.Parameter(
            name=f"w{place}", kind="float32[1]", wrapper=wrapper, reduced=True, unseen=unseen if value == "?" else ""
        )
        for place, value in enumerate(values)
    ]
    fields = {"optimizer": 0, "kind": "SGD", "site": 4, "parameters": parameters, "sharded": False, "apart": False}
    return ev.Optimizer, {**fields, "values": digests(values), **more}


def stepped(gradients: str, parameters: str, number: int = 0, **more: Any) -> Made:
    looked = {"gradients": digests(gradients), "parameters": digests(parameters)}
    return step(9, number=number, place=number, **looked, **more)


CHECKS = ("initial-broadcast", "gradient-sync", "parameter-sync", "optimizer-sync")


def judged(*ranks: list[Made]) -> dict[str, tuple[int, int, str]]:
    """How often each check looked, how many findings it has, and why it was not checked."""
    return {
        one.check: (one.checked, len(one.findings), one.skipped_because if not one.checked else "")
        for one in run_judged(world(*ranks), *CHECKS)
    }


def test_shards_are_not_compared() -> None:
    """Other parts on each rank are right; none of the checks is held, and the reason is the parameters' kind."""
    ranks = [[optimizer("??", "DTensor"), stepped("??", "??", state=state, collectives=3)] for state in ("m=1", "m=2")]
    reason = "ddpcheck does not compare the tensors that the optimizers step (DTensor)"
    assert judged(*ranks) == dict.fromkeys(CHECKS, (0, 0, reason))


def test_what_is_plain_beside_shards_is_compared() -> None:
    """The twin: an optimizer of both kinds; what differs is told of the plain one, and counted."""
    same = [wrapped(3), optimizer("?a", "DTensor", 0), stepped("?g", "?p", rates=[0.1])]
    assert [judged(same, same)[check][:2] for check in CHECKS] == [(1, 0), (1, 0), (1, 0), (1, 0)]
    other = [wrapped(3), optimizer("?a", "DTensor", 0), stepped("?h", "?q", rates=[0.1])]
    assert [judged(same, other)[check][:2] for check in CHECKS] == [(1, 0), (1, 1), (1, 1), (1, 0)]


@pytest.mark.parametrize("letters", ["??", "g?"])
def test_a_look_that_one_rank_did_not_take(letters: str) -> None:
    """Nothing differs where a rank has not looked; a step of which nothing is left does not count."""
    ours = [wrapped(3), optimizer("ab", wrapper=0), stepped("gh", "pq"), stepped("gh", "pq", 1)]
    other = [wrapped(3), optimizer("ab", wrapper=0), stepped("gh", "pq"), stepped(letters, letters, 1)]
    others = [wrapped(3), optimizer("ab", wrapper=0), stepped("gh", "pq"), stepped("xy", "xy", 1)]
    found = judged(ours, other)
    assert found["gradient-sync"] == (2 if "g" in letters else 1, 0, "")
    assert judged(ours, others)["gradient-sync"] == (2, 1, "")


def test_a_wrapper_of_which_nothing_was_looked_at() -> None:
    """Its construction is no look at anything; that of one with a plain buffer is."""
    names, unseen = ["w"], ev.Tensors(names=["w"], digests=ev.UNSEEN)
    assert judged(*[[wrapped(3, parameters=unseen)]] * 2)["initial-broadcast"][0] == 0
    plain = ev.Tensors(names=names, digests=digests("b"))
    assert judged(*[[wrapped(3, parameters=unseen, buffers=plain)]] * 2)["initial-broadcast"][0] == 1


def evaluated(parameters: str, buffers: str, **more: Any) -> list[Made]:
    held = {
        name: ev.Tensors(names=[f"{name}{n}" for n in range(len(letters))], digests=digests(letters))
        for name, letters in (("parameters", parameters), ("buffers", buffers))
    }
    return [(ev.Evaluated, {"kind": "Net", "number": 0, "site": 5, **held, **more})]


@pytest.mark.parametrize(("parameters", "buffers", "expected"), [
    ("?", "", {"buffer-sync": 0, "parameter-sync": 0}),
    ("?", "b", {"buffer-sync": 1, "parameter-sync": 0}),
    ("p", "b", {"buffer-sync": 1, "parameter-sync": 1}),
])  # fmt: skip
def test_an_evaluation_of_shards_counts_nowhere(parameters: str, buffers: str, expected: dict[str, int]) -> None:
    """What a model holds that is sharded says nothing of the ranks; its buffers do."""
    found = run_judged(world(*[evaluated(parameters, buffers)] * 2), "buffer-sync", "parameter-sync")
    assert {one.check: one.checked for one in found} == expected


@pytest.mark.parametrize(("own", "expected"), [(True, 0), (False, 1)])
def test_a_model_that_each_rank_trains_for_itself_counts_nowhere(own: bool, expected: int) -> None:
    """Nothing is claimed of it, so that nothing is held."""
    over = world(*[evaluated(letter, "b", stepped=own) for letter in "pq"])
    found = run_judged(over, "buffer-sync", "parameter-sync")
    assert {one.check: one.checked for one in found} == {"buffer-sync": expected, "parameter-sync": expected}


@pytest.mark.parametrize(("one", "other", "expected"), [
    ((512.0, [0.1]), (256.0, [0.1]), (1, 1)),
    ((512.0, [0.1]), (512.0, [0.1]), (1, 0)),
    ((512.0, [0.1]), (ev.UNREAD, [0.1]), (1, 0)),
    ((512.0, [0.1]), (512.0, [ev.UNREAD]), (1, 0)),
    ((ev.UNREAD, [0.1]), (ev.UNREAD, [ev.UNREAD]), (0, 0)),
    ((512.0, [0.1]), (512.0, [0.2]), (1, 1)),
    ((None, [0.0]), (None, [0.0]), (0, 0)),
])  # fmt: skip
def test_numbers_on_devices(one: Any, other: Any, expected: tuple[int, int]) -> None:
    """A scale or a rate that a rank has not asked for says nothing, nor do rates of zero; two are compared."""
    ranks = [
        [wrapped(3), optimizer("a", wrapper=0), stepped("g", "p", scale=scale, rates=rates)]
        for scale, rates in (one, other)
    ]
    assert judged(*ranks)["optimizer-sync"][:2] == expected


@pytest.mark.parametrize(("letters", "told"), [("?", False), ("g", True)])
def test_steps_of_which_nothing_was_looked_at(letters: str, told: bool) -> None:
    """They were not passed over for the sake of speed."""
    rank = [stepped(letters, letters), stepped(letters, letters, 1, whole=False)]
    assert any("Looked at on every rank: 1 of" in note for note in reader_notes.gaps([world(rank, rank)])) == told
    assert told or reader_notes.gaps([world(rank, rank)]) == ()


def test_the_report_says_what_was_not_compared() -> None:
    """One sentence for all parameters of a world, and one each for what probes slept through."""
    rank = [
        optimizer("??", "DTensor"),
        optimizer("a?", "FullyShardedDataParallel", optimizer=1),
        (ev.Overlooked, {"what": "capture"}),
    ]
    short: Made = (ev.Overlooked, {"what": "memory"})
    assert reader_notes.gaps([world(rank, [*rank, short])]) == (
        "2 parameters of DTensor and 1 parameter of FullyShardedDataParallel were not compared: ddpcheck does not look "
        "into tensors without plain memory.",
        "A CUDA graph was captured on ranks 0 and 1: what its replays do, steps among it, is not seen.",
        "Memory did not suffice for every look at the tensors of rank 1: those are not compared.",
    )
    assert reader_notes.gaps([world([optimizer("a")], [optimizer("a")])]) == ()


def test_places_that_nobody_saw() -> None:
    """They differ from nothing, and they are nothing that was seen."""
    assert step_alignment.differing([digests("a?c"), digests("bbd")]) == [0, 2]
    assert step_alignment.are_seen([digests("?b"), digests("?b")])
    assert not step_alignment.are_seen([digests("?b"), digests("a?")])
    assert not step_alignment.are_seen([b"", b""])


def test_a_program_of_shards_is_judged_whole() -> None:
    """All judges hear of it, and none has a finding."""
    rank = [optimizer("??", "DTensor"), stepped("??", "??", collectives=3)]
    defects: list[str] = []
    found = judges.judge_world(world(rank, rank), defects)
    assert not defects
    assert not any(one.findings for one in found.values())
    assert {check for check in CHECKS if found[check].checked} == set()


def test_works_that_outlive_their_group_are_a_note() -> None:
    """Under NCCL alone there is such a record; it is no finding."""
    held: Made = (ev.Outlived, {"number": 2, "op": "all_reduce", "site": 0})
    assert reader_notes.gaps([world([held], [])]) == (
        "Rank 0 destroyed the NCCL group while holding 2 asynchronous calls that nobody had waited for (the first: "
        "all_reduce): a wait() afterwards may raise, and whether they were done is not known.",
    )
