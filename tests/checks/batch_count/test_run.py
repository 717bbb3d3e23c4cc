"""The judge of batch-count in a run, over passes written by hand."""

from __future__ import annotations

from ddpcheck import evidence as ev
from ddpcheck.checks.batch_count.run import AGREED, judge
from tests.judging.loaded import OWN, PLAIN, STREAM, loader, through
from tests.judging.written import call, ended, world, wrapped

REDUCTION = call(1, 31, "ddp-gradients", detail="wrapper 0")


def counted(*ranks, **more):
    return judge(world(*[[wrapped(5), *own] for own in ranks], **more))


def short(*ranks, **more):
    (finding,) = counted(*ranks, **more).findings
    return finding


def reduced(batches, number=0, **more):
    """A training pass with so many batches of one sample, and a reduction in each."""
    return through(range(batches), number, batch=1, between=[REDUCTION], **more)


def test_equal_numbers_hold():
    """Passes that several ranks came to the end of count."""
    own = [loader(), *reduced(3), *reduced(3, 1), ended()]
    judged = counted(own, own)
    assert (judged.checked, judged.findings) == (2, ())


def test_one_rank_has_fewer():
    """The rank that runs out is told, at its loop, with what stopped the program."""
    finding = short(
        [loader(**OWN), *reduced(4, ended=False)], [loader(**OWN), *reduced(3)], exit_code=None, signal=15
    )  # fmt: skip
    assert finding.ranks == (1,)
    assert finding.found == "at least 4 on rank 0, 3 on rank 1 in pass 1"
    assert finding.cause == "the parts that MySampler gives the ranks make different numbers of batches"
    assert (finding.where.line, finding.proof[0][0]) == (20, 0)
    assert finding.links == ("loader 0", "stop")


def test_a_program_that_came_through_is_not_linked_to_a_stop():
    """Ranks that end as they should, with uneven numbers all the same."""
    own = [loader(**STREAM), *reduced(4), ended()]
    finding = short(own, [loader(**STREAM), *reduced(3), ended()])
    assert finding.links == ("loader 0",)
    assert finding.cause == "each rank's Feed ends when its own part of the data does"


def met(batches, first=1, line=31, number=0, after=(), **more):
    """A training pass with a numbered reduction for each batch, and what comes after it."""
    made = []
    for one in through(range(batches), number, batch=1, **more):
        made.append(one)
        if one[0] is ev.Batch:
            made.append(call(first, line, "all_reduce"))
            first += 1
    return [loader(**OWN), *made, *after]


def agreed(*ranks, **more):
    return counted(*[[*own, ended()] for own in ranks], **more)


def test_ranks_that_agree_on_the_end_may_have_unequal_numbers():
    """A rank that has run out makes the call by which the others ask whether all have a batch."""
    judged = agreed(met(4, exhausted=False), met(3, after=[call(4, 31, "all_reduce")]))
    assert (judged.checked, judged.findings) == (0, ())
    assert judged.skipped_because == AGREED


def test_so_they_may_where_the_run_was_stopped_later_on():
    """The calls show it, however the program ended."""
    ranks = [met(4, exhausted=False), met(3, after=[call(4, 31, "all_reduce")])]
    assert counted(*ranks, exit_code=None, signal=15).findings == ()


def test_ranks_that_have_run_out_may_meet_the_others_in_a_loop_of_their_own():
    """Where nothing was stuck, another line makes no difference."""
    assert agreed(met(4), met(3, after=[call(4, 40, "all_reduce")])).findings == ()


def test_a_call_for_something_else_is_no_agreement():
    """A rank that is elsewhere leaves the others waiting."""
    elsewhere = met(3, after=[call(4, 40, "all_reduce")])
    assert short(met(4, ended=False), elsewhere, exit_code=None, signal=15).severity == "error"
    assert short(met(4, ended=False), met(3, after=[call(4, 31)]), exit_code=None, signal=15).severity == "error"


def test_a_call_that_nobody_answers_is_an_error():
    """Also where the ranks seem to have ended well."""
    (finding,) = agreed(met(4), met(3)).findings
    assert finding.severity == "error"
    assert "a collective that never completes" in finding.advice


def test_a_call_in_another_pass_is_no_agreement():
    """All calls were met, and one of them for something else: a warning, which claims no wait."""
    other = [loader(12, loader=1), *through(range(2), of=1, line=40, trained=False)]
    (finding,) = agreed(met(4), met(3, after=[*other, call(4, 31, "all_reduce")])).findings
    assert finding.severity == "warning"
    assert "never completes" not in finding.advice


def test_the_number_that_the_sizes_imply():
    """torch's own sampler and batches give a number to expect."""
    own = {"size": 16, "batch_size": 4}
    finding = short([loader(**own), *reduced(2)], [loader(**own), *reduced(1)], [loader(**own), *reduced(2)])
    assert finding.ranks == (1,)
    assert finding.expected == "2 batches on every rank (16 samples on 3 ranks, batches of 4)"


def test_other_sizes_are_the_cause():
    """Datasets of the ranks' own, that are not equally large."""
    finding = short([loader(**PLAIN, size=9), *reduced(3)], [loader(**{**PLAIN, "size": 7}), *reduced(2)])
    assert finding.cause == "the ranks have different dataset sizes (9, 7)"


def test_loaders_that_begin_again_are_even_in_the_end():
    """Ranks with shorter passes, and as many batches in all."""
    mine = [*reduced(3), *reduced(3, 1), *reduced(2, 2, exhausted=False)]
    yours = [*reduced(4), *reduced(4, 1)]
    assert counted([loader(), *mine], [loader(), *yours]).findings == ()


def test_a_rank_that_leaves_the_epochs_early_has_no_short_pass():
    """Where all passes in common are equal, it is not the loader that ends too soon."""
    judged = counted([loader(), *reduced(3)], [loader(), *reduced(3), *reduced(1, 1, ended=False)])
    assert judged.findings == ()


def test_within_join_ranks_may_differ():
    """model.join() is for uneven inputs."""
    judged = counted([loader(), *reduced(4, joined=True)], [loader(), *reduced(3, joined=True)])
    assert judged.findings == ()


def test_evaluation_without_collectives_may_differ():
    """Ranks that do not meet between their batches need not have equally many."""
    mine, yours = through(range(8), trained=False, grad=False), through(range(4), trained=False, grad=False)
    assert counted([loader(), *mine, REDUCTION], [loader(), *yours, REDUCTION]).findings == ()


def test_evaluation_with_collectives_may_not():
    """A collective for every batch has to be met by every rank."""
    metric = call(1, 40, "all_reduce")
    mine = through(range(8), trained=False, grad=False, between=[metric], ended=False)
    yours = through(range(4), trained=False, grad=False, between=[metric])
    assert short([loader(**PLAIN), *mine], [loader(**PLAIN), *yours]).ranks == (1,)


def test_a_rank_without_a_batch():
    """An empty shard is a number of batches, too."""
    mine = reduced(1, ended=False)
    finding = short([loader(**PLAIN), *mine], [loader(**{**PLAIN, "size": 0}), *reduced(0, grad=True)])
    assert finding.found == "at least 1 on rank 0, 0 on rank 1 in pass 1"
