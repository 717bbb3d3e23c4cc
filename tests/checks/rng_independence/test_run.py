"""The judge of rng-independence, over random states written by hand."""

from __future__ import annotations

import math

import pytest

from ddpcheck import evidence as ev
from ddpcheck.checks.rng_independence.run import judge
from ddpcheck.judging.world import Process
from tests.judging.loaded import STREAM, drawn, loader, through
from tests.judging.written import ended, rank, world, wrapped

SEEDED = {"seeded": 7, "seed": "42"}


def judged(*ranks, lines=None):
    return judge(world(*[[wrapped(5), *own, ended()] for own in ranks], lines=lines))


def found(*ranks, lines=None):
    (finding,) = judged(*ranks, lines=lines).findings
    return finding


def forwards(*states, **more):
    return [drawn(state, number=number, **more) for number, state in enumerate(states)]


# --- forwards


def test_streams_that_differ_hold():
    """Each forward that several ranks drew in counts."""
    verdict = judged(forwards("a", "b"), forwards("c", "d"))
    assert (verdict.checked, verdict.findings) == (2, ())


def test_nothing_random_is_not_checked():
    """A net without dropout draws nothing."""
    assert judged([], []).skipped_because.startswith("no random numbers were seen to be drawn")


def test_the_same_dropout_on_all_ranks():
    """It is told at the forward where no line is known to have seeded."""
    finding = found(forwards("a", "b"), forwards("a", "b"))
    assert (finding.severity, finding.ranks, finding.where.line) == ("warning", (0, 1), 30)
    assert finding.found == (
        "the same state of torch's random numbers on ranks 0 and 1 at the start of forwards that drew from it: dropout "
        "or noise is the same on them"
    )
    assert finding.links == ("wrapper 0",)


def test_the_line_that_seeded_is_told():
    """All ranks have the same seed from one line."""
    finding = found(forwards("a", "b", **SEEDED), forwards("a", "b", **SEEDED))
    assert (finding.where.line, finding.proof[0][1].line) == (7, 30)
    assert finding.cause == "the seed that is set at train.py:7 does not depend on the rank"


def test_a_line_that_seeded_apart_is_not_told():
    """Streams were seeded with the rank, and brought together by other means."""
    mine, yours = {"seeded": 7, "seed": "1"}, {"seeded": 7, "seed": "2"}
    finding = found(forwards("a", "b", **mine), forwards("a", "b", **yours))
    assert finding.where.line == 30
    assert finding.cause == "their generators were synchronised, or never seeded apart"


def test_a_state_that_is_restored():
    """One rank's state on all of them, from a checkpoint."""
    finding = found(*[forwards(r, f"{r}b", "c", "d", seeded=7, seed="state 9f3c") for r in range(2)])
    assert finding.cause == "the random state of one rank was restored on all of them"
    assert finding.advice == "Save the random state of every rank, and let each restore its own."


def test_once_is_a_rehearsal():
    """One forward of several that is alike may be one before the seeds."""
    assert judged(forwards("a", "b", "c"), forwards("a", "x", "y")).findings == ()


def test_groups_of_ranks_that_are_alike():
    """Two of four are wrong already, and all such groups are told."""
    finding = found(*[forwards(*states) for states in ("ab", "ab", "cd", "cd")])
    assert "on ranks 0 and 1 and on ranks 2 and 3 at the start of forwards" in finding.found
    assert finding.count == 2


def test_ranks_of_one_model_may_draw_alike():
    """Ranks outside of each other's DDP group hold parts of one model."""
    ranks = [[wrapped(5, group=f"{r % 2},{r % 2 + 2}#1"), *forwards(*"ab" if r < 2 else "cd")] for r in range(4)]
    verdict = judge(world(*ranks))
    assert (verdict.checked, verdict.findings) == (4, ())


# --- fetches


def fetched(states, number=0, **more):
    return [drawn(state, "fetch", place, pass_=number, **more) for place, state in enumerate(states)]


def epochs(*states, base_seeds=(None, None, None), **more):
    """Training passes, with the states that their fetches drew from."""
    return [
        made
        for number, drew in enumerate(states)
        for made in [*through(range(8), number, base_seed=base_seeds[number]), *fetched(drew, number, **more)]
    ]


def test_augmentation_that_differs_holds():
    """On each rank, and in each epoch."""
    assert judged([loader(), *epochs("ab", "cd")], [loader(), *epochs("ef", "gh")]).findings == ()


def test_the_same_augmentation_on_all_ranks():
    """It is told at the line that makes the loader where no line is known to have seeded."""
    finding = found([loader(), *epochs("ab")], [loader(), *epochs("ab")])
    assert (finding.where.line, finding.links) == (10, ("loader 0",))
    assert "where samples were fetched: the same augmentation" in finding.found


def test_the_same_augmentation_in_every_epoch():
    """Workers that are seeded anew with the same number."""
    own = {"seeded": 8, "seed": "5", "worker": 0}
    finding = found([loader(), *epochs("ab", "ab", **own)], [loader(), *epochs("cd", "cd", **own)])
    assert finding.expected == "random numbers that are others in every epoch"
    assert finding.where.line == 8
    assert "initial_seed" in finding.advice


def by_seeds(*passes, line=8, **more):
    """Fetches in which samples set the state, each to the next one of these seeds; it comes out the same every time."""
    return [
        made
        for number, seeds in enumerate(passes)
        for made in [
            *through(range(8), number),
            *(drawn(place, "fetch", place, pass_=number, seeded=line, seed=seed, inside=True, **more)
              for place, seed in enumerate(seeds)),
        ]
    ]  # fmt: skip


@pytest.mark.parametrize("seeds", ["048", "0"])
@pytest.mark.parametrize("worker", [{}, {"worker": 0}], ids=["rank", "worker"])
def test_samples_that_are_made_from_their_index(seeds, worker):
    """They are the same in every epoch because they are synthetic; of one fetch in a pass, the ranks tell."""
    other = "".join(str(int(seed) + 1) for seed in seeds)
    verdict = judged([loader(), *by_seeds(seeds, seeds, **worker)], [loader(), *by_seeds(other, other, **worker)])
    assert verdict.findings == ()
    assert verdict.skipped_because.startswith("no random numbers were seen but those of samples")


def test_one_seed_for_every_sample():
    """A line within the dataset that takes all samples back to the same numbers; it may be meant so."""
    finding = found([loader(), *by_seeds("555", "555")], [loader(), *by_seeds("555", "555")])
    assert (finding.severity, finding.where.line) == ("warning", 8)
    assert finding.cause == "the seed that is set at train.py:8 is the same for every sample"
    # On each rank another.
    finding = found([loader(), *by_seeds("555", "555")], [])
    assert finding.severity == "warning"


def test_epochs_that_repeat_by_a_line_that_was_not_seen():
    """Who knows what it does: no error."""
    finding = found([loader(), *epochs("ab", "ab")], [loader(), *epochs("cd", "cd")])
    assert (finding.severity, finding.cause) == (
        "warning", "a line that was not seen sets them to the same in every epoch",
    )  # fmt: skip
    own = {"seeded": 8, "seed": "5"}
    assert found([loader(), *epochs("ab", "ab", **own)], [loader(), *epochs("cd", "cd", **own)]).severity == "error"


def test_alike_on_ranks_and_in_epochs_is_one_finding():
    """A worker's seed that is its number alone."""
    own = {"seeded": 8, "seed": "0", "worker": 0}
    finding = found(*[[loader(), *epochs("ab", "ab", **own)]] * 2)
    assert finding.found.endswith("by the loader's workers, and again in every epoch: the same augmentation on them")


def test_dropout_and_augmentation_of_one_seed_are_one_finding():
    """The line that seeds both is told once."""
    own = [loader(), *epochs("ab", **SEEDED), *forwards("x", "y", **SEEDED)]
    finding = found(own, own)
    assert (finding.where.line, finding.links) == (7, ("wrapper 0", "loader 0"))


def test_several_seeds_of_a_worker_are_told_at_the_loader():
    """One function seeds torch, numpy and random, each at its line."""
    own = [
        loader(),
        *epochs("ab", seeded=8, seed="5", worker=0),
        *fetched("cd", kind="numpy", seeded=9, seed="6", worker=0),
    ]
    finding = found(own, own)
    assert (finding.where.line, [site.line for _, site in finding.proof]) == (10, [9, 8])
    assert finding.subject == "numpy's and torch's random state"


def test_several_seeds_of_a_rank_are_told_where_they_are_set():
    """A function that seeds torch, numpy and random is where it is to be changed, and not the loader that draws."""
    own = [loader(), *epochs("ab", seeded=8, seed="5"), *fetched("cd", kind="numpy", seeded=9, seed="6")]
    finding = found(own, own)
    assert (finding.severity, finding.where.line) == ("warning", 9)
    assert finding.cause == "the seeds that are set at train.py:9 and train.py:8 do not depend on the rank"


def test_evaluation_may_be_alike():
    """Only what is trained with has to differ."""
    own = [loader(), *through(range(8), trained=False, grad=False), *fetched("ab")]
    assert judged(own, own).findings == ()


def test_a_stream_may_draw_its_order():
    """Before its first sample, a stream may shuffle its files, and all ranks have to do so alike."""
    own = [loader(**STREAM), *through(None, contents=range(8)), *fetched("a")]
    assert (judged(own, own).checked, judged(own, own).findings) == (0, ())


def test_workers_write_for_their_rank():
    """A worker that was started afresh is known by its base seed; the line that seeded the rank is told."""
    ranks = []
    for number in range(2):
        own = [wrapped(5), loader(), *through(range(8), base_seed=77, seeded=7, seed="3"), ended()]
        made = rank(number, own)
        worker = Process("w")
        worker.add([
            kind(n=n, at=0.0, **{**fields, "loader": None, "worker": 0, "base_seed": 77, "site": 0})
            for n, (kind, fields) in enumerate(fetched("ab"))
        ])  # fmt: skip
        made.workers.append(worker)
        ranks.append(made)
    over = world([], [])
    over.ranks = tuple(ranks)
    verdict = judge(over)
    (finding,) = verdict.findings
    assert finding.where.line == 7
    assert math.isfinite(verdict.checked)
    assert isinstance(worker.of(ev.Stream)[0], ev.Stream)


# --- what runs again


def again(number=0, drew=("torch",), apart=()):
    return ev.Recomputed, {"site": 40, "number": number, "drew": list(drew), "apart": list(apart)}


def test_other_numbers_in_the_second_forward():
    """It is wrong on any rank, however the others draw."""
    finding = found([again(), again(1)], [again(apart=["torch"]), again(1, apart=["torch"])])
    assert (finding.severity, finding.ranks, finding.where.line, finding.count) == ("error", (1,), 40, 1)
    assert finding.found.startswith("2 of the 4 second runs that drew to begin from another state")


def test_second_forwards_that_do_not_always_draw():
    """Another thread may have drawn while they ran."""
    verdict = judged([again(apart=["torch"]), again(1, drew=())], [])
    assert verdict.findings == ()


def test_the_same_numbers_in_the_second_forward():
    """That a rank draws the same again shows nothing of the others."""
    verdict = judged([again(), again(1)], [again(), again(1)])
    assert (verdict.checked, verdict.findings) == (0, ())


# --- not held


def test_a_rank_that_draws_nothing():
    """Whether its numbers would be the others' was not seen, however its epochs or those of the others differ."""
    both = judged([loader(), *epochs("ab")], [loader(), *epochs("cd")])
    alone = judged([loader(), *epochs("ab")], [loader(), *through(range(8)), *through(range(8), 1)])
    assert (both.checked, alone.checked, alone.findings) == (2, 0, ())
    assert alone.skipped_because.startswith("no moment was seen at which all ranks")
    assert judged(forwards("a", "b"), forwards("c"), []).checked == 0


def test_ranks_that_may_read_the_same():
    """Without copies of one model on record, nothing says that ranks have to draw other numbers."""
    ranks = [[loader(), *epochs(states), ended()] for states in ("ab", "cd")]
    assert judge(world(*ranks)).checked == 0
