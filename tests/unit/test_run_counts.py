"""The judges of batch-count and epoch-reshuffle in a run, over passes written by hand."""

from __future__ import annotations

from ddpcheck import evidence as ev
from ddpcheck.checks.batch_count.run import AGREED
from tests.unit.judged import run_judged
from tests.unit.loaded import OWN, PLAIN, STREAM, loader, through
from tests.unit.written import call, ended, world, wrapped

REDUCTION = call(1, 31, "ddp-gradients", detail="wrapper 0")


def verdict(check, *ranks, **more):
    (judged,) = run_judged(world(*[[wrapped(5), *own] for own in ranks], **more), check)
    return judged


def counted(*ranks, **more):
    return verdict("batch-count", *ranks, **more)


def short(*ranks, **more):
    (finding,) = counted(*ranks, **more).findings
    return finding


def reduced(batches, number=0, **more):
    """A training pass with so many batches of one sample, and a reduction in each."""
    return through(range(batches), number, batch=1, between=[REDUCTION], **more)


# --- batch-count


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


# --- epoch-reshuffle


def epochs(*ranks):
    return verdict("epoch-reshuffle", *ranks)


def again(*ranks):
    (finding,) = epochs(*ranks).findings
    return finding


def trained(*orders, line=20, numbers=None):
    """Passes with these epochs and orders."""
    return [
        made
        for number, (epoch, order) in enumerate(orders)
        for made in through(range(12), number, epoch=epoch, order=order, line=line)
    ]


def test_other_orders_hold():
    """Each epoch after the first counts."""
    own = [loader(), *trained((0, "a"), (1, "b"), (2, "c"))]
    judged = epochs(own, own)
    assert (judged.checked, judged.findings) == (2, ())


def test_without_set_epoch_the_order_comes_again():
    """It is told at the loop, with the line of the sampler."""
    own = [loader(), *trained((0, "a"), (0, "a"), (0, "a"))]
    finding = again(own, own)
    assert finding.found == "passes 1 and 2 through the DistributedSampler in the same order"
    assert finding.cause.endswith("the epoch was 0 both times")
    assert (finding.severity, finding.where.line, finding.count) == ("error", 20, 2)
    assert finding.proof[0][1].line == 11


def test_a_second_look_at_an_epoch_is_no_fault():
    """An epoch may be gone through twice, as long as there is another one."""
    assert epochs([loader(), *trained((0, "a"), (1, "b"), (1, "b"))]).findings == ()


def test_a_sampler_that_ignores_its_epoch():
    """set_epoch was called, and changes nothing."""
    finding = again([loader(), *trained((0, "a"), (1, "a"))])
    assert finding.cause == "the sampler's order does not depend on its epoch (0, then 1)"


def test_evaluation_needs_no_other_order():
    """Only training passes are compared."""
    own = [loader(), *(m for n in range(3) for m in through(range(12), n, order="a", trained=False, grad=False))]
    assert (epochs(own).checked, epochs(own).findings) == (0, ())


def test_a_loader_for_every_epoch():
    """Loaders that one line makes anew are compared with each other."""
    own = [
        made
        for number in range(3)
        for made in [loader(loader=number), *through(range(12), of=number, order="a")]
    ]  # fmt: skip
    assert again(own).count == 2


def test_other_datasets_of_one_size_are_not_compared():
    """Two datasets that one line goes through may have the same order."""
    own = [
        made
        for number in range(2)
        for made in [loader(loader=number, dataset_id=number), *through(range(12), of=number, order="a")]
    ]  # fmt: skip
    assert epochs(own).findings == ()


def test_a_generator_that_is_seeded_anew():
    """Without ranks, too, an order that is meant to change has to."""
    finding = again([loader(**PLAIN), *trained((None, "a"), (None, "a"))])
    assert finding.cause == "the random state that it shuffles with was the same both times"


def test_training_data_that_are_never_shuffled():
    """A distributed sampler that was told not to shuffle: a warning, at its line."""
    own = [loader(shuffle=False), *trained((0, "a"), (1, "a"))]
    finding = again(own, own)
    assert (finding.severity, finding.where.line) == ("warning", 11)


def test_a_dataset_that_shuffles_by_itself():
    """The same index is another sample in the next epoch."""
    own = [
        loader(shuffle=False),
        *through(range(12), 0, order="a"),
        *through(range(12), 1, order="a", contents=range(50, 62)),
    ]
    assert epochs(own, own).findings == ()


def test_samplers_of_ones_own_may_keep_their_order():
    """A curriculum has the same order each time."""
    own = [loader(**OWN), *trained((None, "a"), (None, "a"))]
    assert epochs(own, own).findings == ()
