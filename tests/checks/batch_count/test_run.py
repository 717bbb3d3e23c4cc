"""The judge of batch-count in a run, over passes written by hand."""

from __future__ import annotations

import pytest

from ddpcheck import evidence as ev
from ddpcheck.checks.batch_count.run import AGREED, APART, UNENDED, judge
from ddpcheck.judging.world import Moment
from tests.judging.loaded import LOOP, OWN, PLAIN, STREAM, loader, through
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


def met(batches, first=1, line=31, number=0, after=(), loop=LOOP, **more):
    """A training pass with a numbered reduction for each batch, and what comes after it."""
    made = []
    for one in through(range(batches), number, batch=1, line=loop, **more):
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


def test_an_evaluation_is_told_to_reduce_afterwards():
    """No backward() was called there, and nothing needs equally many batches."""
    (finding,) = agreed(met(4, trained=False), met(3, trained=False)).findings
    assert "after the loop" in finding.advice


def test_a_training_is_not_told_to_reduce_afterwards():
    finding = short(
        [loader(**OWN), *reduced(4, ended=False)], [loader(**OWN), *reduced(3)], exit_code=None, signal=15
    )  # fmt: skip
    assert "after the loop" not in finding.advice


def begun_again(first, then, loop=LOOP, made=None):
    """A pass with a call for each batch, and another one at once that is broken off, with the calls that follow."""
    loaders = [loader(made, **OWN, loader=1)] if made else []
    of = {"of": 1} if made else {"number": 1}
    return [*met(first), *loaders, *met(then, first + 1, loop=loop, exhausted=False, **of)[1:]]


@pytest.mark.parametrize(
    "again", [{}, {"loop": 40}, {"made": 10, "loop": 40}], ids=["at once", "at another line", "by another loader"]
)
def test_ranks_that_begin_their_loader_again_need_no_equal_passes(again):
    """A training that ends by its steps: as many batches on each rank, however long its passes are."""
    judged = agreed(begun_again(3, 3, **again), begun_again(4, 2, **again))
    assert (judged.checked, judged.findings, judged.skipped_because) == (0, (), AGREED)


def test_a_batch_that_is_left_alone_needs_no_call():
    """A loop that counts its steps takes a batch more before it breaks off."""
    (*counting, last, end) = met(4, exhausted=False)
    assert last[0] is ev.Call
    assert agreed([*counting, end], met(3)).findings == ()


def test_a_rank_that_may_still_come_misses_nothing():
    """While the program runs, a rank whose pass has just ended may be about to begin the next one."""
    ranks = [[wrapped(5), *met(4, ended=False)], [wrapped(5), *met(3)]]
    assert judge(world(*ranks, now=Moment(at=99.0), exit_code=None)).findings == ()
    assert judge(world(*ranks, exit_code=None)).findings


def test_a_reason_is_what_was_not_seen():
    """Passes that were ended, with no collective between their batches; and passes that were not ended."""
    own = [loader(**OWN), *through(range(8), batch=1), REDUCTION]
    assert counted(own, own).skipped_because == APART
    own = [loader(**OWN), *reduced(4, ended=False)]
    assert counted(own, own).skipped_because == UNENDED


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
    judged = counted([loader(), *mine], [loader(), *yours])
    assert (judged.checked, judged.findings, judged.skipped_because) == (0, (), AGREED)


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


# --- the fix that fits what deals out the samples

DIVIDES = "    def part(self):\n        order = self.all()\n        return order[self.rank :: self.world]\n"
HANDS_OUT = "    def __iter__(self):\n        batches = pack(self.sampler)\n        return iter(batches)\n"
ITERATES = "    def __iter__(self):\n        yield from self.part()\n"
BUDGET = {"batch_sampler": "Budget", "sampler": "DistributedSampler", "batch_size": None}
BUCKETS = {**OWN, "batch_sampler": "Buckets", "sampler": "Buckets", "batch_size": None, "distributed": True}


def method(number, first, function, body):
    """The first line of a function of a sampler's class, as it is on record."""
    fields = {"id": number, "file": "samplers.py", "line": first, "function": function, "text": "", "first": first}
    return ev.Site, {**fields, "body": body}


def uneven(*methods, **sampler):
    """A rank with a batch less; the methods of its sampler's class are on record."""
    made = loader(**{**sampler, "order": [fields["id"] for _, fields in methods]})
    return short([*methods, made, *reduced(4, ended=False)], [*methods, made, *reduced(3)], exit_code=None, signal=15)


def test_an_own_sampler_is_what_is_to_be_changed():
    """The line at which its list is divided is named, and the loop is what shows it."""
    finding = uneven(method(200, 5, "__iter__", ITERATES), method(201, 8, "part", DIVIDES), **OWN)
    assert (str(finding.where), finding.proof[0][1].line) == ("samplers.py:10 in part", 20)
    assert "let MySampler give every rank as many samples" in finding.advice
    assert "DistributedSampler" not in finding.advice


def test_without_such_a_line_it_is_where_the_order_is_iterated():
    """A generator has no `return` either."""
    finding = uneven(method(200, 5, "__iter__", ITERATES), **OWN)
    assert str(finding.where) == "samplers.py:5 in __iter__"


def test_a_sampler_of_batches_is_not_told_to_drop_last():
    """DataLoader refuses drop_last, and a DistributedSampler deals out samples."""
    finding = uneven(method(201, 8, "part", DIVIDES), **BUCKETS)
    assert "let Buckets give every rank as many batches" in finding.advice
    assert not any(word in finding.advice for word in ("DistributedSampler", "drop_last"))


def test_batches_made_of_a_rank_s_own_samples():
    """There is a DistributedSampler already: the batches are what differs."""
    finding = uneven(method(200, 5, "__iter__", HANDS_OUT), **BUDGET)
    assert str(finding.where) == "samplers.py:7 in __iter__"
    assert finding.cause.startswith("Budget makes the batches on each rank of that rank's samples alone")
    assert "alike on every rank, and deal as many" in finding.advice
    assert "DistributedSampler" not in finding.advice


def test_where_no_class_of_the_program_s_own_deals_out_a_distributed_sampler_would_even_it_out():
    """A list of indices, say."""
    finding = uneven(**{**OWN, "sampler": "range"})
    assert "give the loader a DistributedSampler, which pads" in finding.advice
    assert finding.where.line == 20


def test_a_stream_takes_no_sampler():
    """DataLoader refuses one."""
    advice = uneven(**STREAM).advice
    assert "agree on the number of batches" in advice
    assert "Sampler" not in advice


def test_other_batch_sizes_are_made_the_same():
    """The fix is that of the cause, and the sampler has no part in it."""
    part = method(201, 8, "part", DIVIDES)
    ranks = [[part, loader(**OWN, batch_size=n, order=[201]), *reduced(12 // n)] for n in (3, 4)]
    finding = short(*ranks)
    assert "the same batch_size and drop_last on every rank" in finding.advice
    assert finding.where.line == 20


def test_a_rank_that_went_on_into_the_next_pass_is_told():
    """Its batches there answer those of the pass before on the other rank."""
    mine = [loader(**OWN), *reduced(4), *reduced(4, 1, ended=False)]
    went_on = short(mine, [loader(**OWN), *reduced(3), *reduced(3, 1)], exit_code=None, signal=15)
    assert went_on.found == (
        "4 on rank 0, 3 on rank 1 in pass 1; rank 1 then went on into pass 2, while rank 0 had a batch left"
    )
    stayed = short([loader(**OWN), *reduced(4, ended=False)], [loader(**OWN), *reduced(3)], exit_code=None, signal=15)
    assert "went on" not in stayed.found


@pytest.mark.parametrize(
    ("cut", "line"),
    [
        ("order[rank * n : (rank + 1) * n]", 7),
        ("order[self.rank :: self.world]", 7),
        ("order[: per_rank * world]", 8),
        ("order[per_rank:]", 8),
    ],
)
def test_a_list_is_divided_where_it_is_cut_from_the_rank_on(cut, line):
    """What pads it to a multiple of a rank's share is no such line."""
    body = f"    def __iter__(self):\n        order = self.all()\n        order = {cut}\n        return iter(order)\n"
    assert uneven(method(200, 5, "__iter__", body), **OWN).where.line == line
