"""Ranks that take parts of the same sequences: whether these make up the whole."""

from __future__ import annotations

import pytest

from ddpcheck import evidence as ev
from ddpcheck.checks.shard_partition.run import judge
from tests.judging.loaded import loader, through
from tests.judging.own_reductions import BOTH, optimizer, stepped
from tests.judging.written import call, ended, exchanged, world, wrapped

LINE = 44
FRONT, BACK = [[0, 0, 5]], [[0, 5, 4]]
INPUTS = ("Embedding", FRONT), ("Embedding", BACK)
SHIFTED = ("NllLoss", [[0, 1, 5]]), ("NllLoss", [[0, 6, 3]])


def rank(*uses, times=2, batch=b"12345678", lengths=(9, 9), **more):
    """A rank whose backwards have used these places of the batch's tensors."""
    parts = [
        ev.Part(tensor=use[2] if len(use) > 2 else 0, by=use[0], size=sum(run[2] for run in use[1]), runs=use[1])
        for use in uses
    ]
    given = {"site": LINE, "digests": batch, "lengths": list(lengths), "parts": parts, **more}
    return [*[(ev.Sequences, {**given, "number": number}) for number in range(times)], ended()]


REDUCES = [optimizer(), exchanged(0, *BOTH), stepped("gh")]
"""The program averages gradients itself."""


def said(*ranks):
    return judge(world(*ranks))


def told(*ranks):
    (finding,) = said(*ranks).findings
    return finding


def test_parts_that_make_up_the_whole():
    """Each pass counts in which parts were compared."""
    ranks = [rank(INPUTS[number], SHIFTED[number]) for number in (0, 1)]
    passes = [[loader(), *through(range(4), ended=False), *own] for own in ranks]
    judged = said(*[[wrapped(5, group="0,1#1"), *own] for own in passes])
    assert (judged.checked, judged.findings) == (1, ())


@pytest.mark.parametrize(("unseen", "found"), [(False, 1), (True, 0)])
def test_parts_that_were_not_seen(unseen, found):
    """Ranks that read the same samples may each take a part of them: on devices nobody looks."""
    loss = (ev.Sequences, {"number": 0, "site": LINE, "unseen": True})
    unsaid = [loss] if unseen else []
    ranks = [[loader(), *through([*range(16)]), *unsaid, call(0, LINE, "all_reduce"), *REDUCES, ended()]] * 2
    judged = said(*ranks)
    assert (len(judged.findings), bool(judged.skipped_because)) == (found, unseen)
    assert unseen == ("it was not seen on their devices" in judged.skipped_because)


@pytest.mark.parametrize("inputs", [True, False])
def test_labels_that_are_shifted_within_a_part(inputs):
    """The first token of the second part is on no rank a target."""
    uses = [("NllLoss", [[0, 1, 4]])], [("NllLoss", [[0, 6, 3]])]
    ranks = [rank(*use, *([INPUTS[number]] if inputs else [])) for number, use in enumerate(uses)]
    finding = told(*ranks)
    assert (finding.severity, finding.ranks, finding.where.line, finding.count) == ("warning", (0, 1), LINE, 1)
    assert "1 place (counted from 0: 5) to be a target on no rank" in finding.found


def test_targets_that_are_left_out_elsewhere():
    """A place in the midst of a part may be masked on purpose."""
    ranks = rank(INPUTS[0], ("NllLoss", [[0, 1, 2], [3, 4, 2]])), rank(INPUTS[1], SHIFTED[1])
    assert said(*ranks).findings == ()


def test_a_batch_that_happens_to_look_so():
    """What is wrong is wrong in every batch."""
    right = rank(INPUTS[0], SHIFTED[0]), rank(INPUTS[1], SHIFTED[1])
    wrong = rank(INPUTS[0], ("NllLoss", [[0, 1, 4]])), rank(INPUTS[1], SHIFTED[1])
    assert said(*[[mine[0], yours[1], ended()] for mine, yours in zip(right, wrong, strict=True)]).findings == ()


def test_a_mask_that_is_not_dealt_out():
    """All ranks have the front of it."""
    ranks = [rank(INPUTS[n], SHIFTED[n], ("Mul", [[0, 0, (5, 4)[n]]], 1)) for n in range(2)]
    assert said(*ranks).findings == ()  # not the same places: what that is, nobody knows
    even = [("Embedding", [[0, 4 * n, 4]]) for n in range(2)]
    finding = told(*[rank(use, ("Mul", [[0, 0, 4]], 1), lengths=(8, 8)) for use in even])
    assert finding.subject == "tensor 1 of the batch"
    assert finding.found.startswith("places 0 to 3 of it in use (Mul) on each of ranks 0 and 1")
    assert said(*[rank(use, ("Mul", [[0, 4 * n, 4]], 1), lengths=(8, 8)) for n, use in enumerate(even)]).findings == ()


@pytest.mark.parametrize("size", [8, 3, 4])
def test_what_is_no_part_of_the_sequence(size):
    """The whole of it, another number of places, or a tensor of another length: a condition that all ranks need."""
    lengths = (8, 77) if size == 4 else (8, 8)
    ranks = [rank(("Embedding", [[0, 4 * n, 4]]), ("Mul", [[0, 0, size]], 1), lengths=lengths) for n in range(2)]
    assert said(*ranks).findings == ()


def test_a_zigzag_that_is_joined_in_the_order_of_ranks():
    """Only where the pieces are not in that order, and were joined so on all ranks."""
    zigzag = ("Embedding", [[0, 0, 3], [3, 9, 3]]), ("Embedding", [[0, 3, 6]])
    finding = told(*[rank(use, in_rank_order=True) for use in zigzag])
    assert "places 0 to 2, 9 to 11 on rank 0; 3 to 8 on rank 1" in finding.found
    assert said(*[rank(use) for use in zigzag]).findings == ()
    assert said(*[rank(use, in_rank_order=True) for use in INPUTS]).findings == ()


def test_a_zigzag_whose_positions_are_gathered_as_well():
    """A mask that is made of these needs no order."""
    zigzag = ("Embedding", [[0, 0, 3], [3, 9, 3]]), ("Embedding", [[0, 3, 6]])
    positions = call(0, LINE, "all_gather", detail="int64[4, 6]")
    assert said(*[[positions, *rank(use, in_rank_order=True)] for use in zigzag]).findings == ()


def test_other_batches_and_whole_sequences():
    """Ranks with other batches, and ranks that use all of the same one, share no sequence."""
    assert said(rank(INPUTS[0]), rank(INPUTS[1], batch=b"87654321")).checked == 0
    assert said(rank(("Embedding", [[0, 0, 9]])), rank(("Embedding", [[0, 0, 9]]))).checked == 0


def test_ranks_that_share_sequences_read_the_same_data_on_purpose():
    """Without their parts it is a finding."""
    read = [loader(), *through(list(range(16))), *REDUCES]
    parts = rank(INPUTS[0], SHIFTED[0]), rank(INPUTS[1], SHIFTED[1])
    assert len(said([*read, ended()], [*read, ended()]).findings) == 1
    assert said(*[[*read, *own] for own in parts]).findings == ()


def packed(begins, breaks=()):
    """Two texts in a sequence of nine places, of which each rank takes one and shifts its labels within it."""
    first = rank(("Embedding", [[0, 0, begins]]), ("NllLoss", [[0, 1, begins - 1]]), times=1, breaks=[list(breaks), []])
    second = rank(
        ("Embedding", [[0, begins, 9 - begins]]), ("NllLoss", [[0, begins + 1, 8 - begins]]), times=1, breaks=[[], []]
    )
    return first[0], second[0]


def of_packs(*each):
    sides = [[], []]
    for number, pair in enumerate(each):
        for side, (kind, fields) in zip(sides, pair, strict=True):
            side.append((kind, {**fields, "number": number}))
    return said(*[[*side, ended()] for side in sides]).findings


def test_texts_that_are_packed_into_one_sequence():
    """Parts begin where a text may, or elsewhere in each pack: nobody has to predict their first tokens."""
    assert len(of_packs(packed(5), packed(5))) == 1
    assert of_packs(packed(5), packed(4)) == ()
    assert of_packs(packed(5, breaks=[2, 5]), packed(5, breaks=[5])) == ()
    assert len(of_packs(packed(5, breaks=[5]), packed(5, breaks=[2]))) == 1


def test_a_zigzag_that_is_attended_to_in_its_own_order():
    """Whoever masks by positions, or looks at all of them, needs no other order."""
    zigzag = ("Embedding", [[0, 0, 3], [3, 9, 3]]), ("Embedding", [[0, 3, 6]])
    assert said(*[rank(use, in_rank_order=True, any_order=True) for use in zigzag]).findings == ()
