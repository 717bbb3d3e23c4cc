"""Two faults in one run: neither hides the other, and what one cause explains is one finding."""

from __future__ import annotations

import pytest

from ddpcheck import evidence as ev
from ddpcheck.verdict.judges import judge_world
from ddpcheck.verdict.verdict import conclude
from ddpcheck.vocabulary.model import CallSite, Finding
from tests.judging.loaded import loader, through
from tests.judging.written import ended, save, step, world, wrapped

WIDTH = ev.WIDTH


def digests(text):
    """One tensor for each letter."""
    return b"".join(letter.encode() * WIDTH for letter in text)


def told(*ranks, **more):
    """The findings of a run, as a report has them: check, line, and what follows from it."""
    run = world(*[[*records, ended()] for records in ranks], **more)
    verdict = conclude([judge_world(run)], worlds=[run])
    return [(f.check, f.where.line if f.where else None, f.also) for f in verdict.findings]


# --- two models that are evaluated on one line


def evaluated(line, module, parameters="ab", buffers="", wrapper=None, number=3, **more):
    def tensors(letters):
        return ev.Tensors(names=[f"t{place}" for place in range(len(letters))], digests=digests(letters))

    fields = {"kind": "Net", "number": number, "parameters": tensors(parameters), "buffers": tensors(buffers)}
    return ev.Evaluated, {**fields, "site": line, "module": module, "wrapper": wrapper, **more}


def trained(*records):
    return [wrapped(3), optimizer(0, 4), stepped(9, "gh"), *records]


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        # The statistics of the model, and the parameters of its average.
        (("ab", "s"), ("ab", "x"), [("buffer-sync", 20, ()), ("parameter-sync", 20, ())]),
        # Alike: only the average.
        (("ab", "s"), ("ab", "s"), [("parameter-sync", 20, ())]),
    ],
)
def test_models_evaluated_on_one_line(first, second, expected):
    """Each is compared with itself on the other ranks, in whatever order they come."""

    def rank(model, average, module):
        return trained(evaluated(20, module, *model, wrapper=0), evaluated(20, module + 1, average, "s"))

    assert sorted(told(rank(first, "pq", 7), rank(second, "rs", 9))) == expected


def test_the_parameters_and_buffers_of_one_model_are_one_finding():
    """A copy that each rank has made for itself."""
    ranks = [trained(evaluated(20, 5, letters, letters)) for letters in ("pq", "rs")]
    assert told(*ranks) == [("parameter-sync", 20, ("buffer-sync",))]


def test_a_dry_run_before_the_wrap_is_no_finding():
    """Whatever each rank tries out, the wrapper's constructor makes equal; on many inputs it is no dry run."""

    def told_of(line=20, module=5, on_data=None, parts=(5, 6)):
        def rank(letters):
            more = [] if on_data is None else [(ev.EvaluatedOnData, {"module": on_data, "site": 20})]
            return [evaluated(line, module, letters, letters, number=0), *more, wrapped(3, module=5, parts=[*parts])]

        return told(rank("pq"), rank("rs"))

    assert told_of() == []
    assert told_of(module=6) == []  # a part of it
    assert told_of(on_data=6) == []
    assert told_of(on_data=5) == [("parameter-sync", 20, ("buffer-sync",))]
    assert told_of(module=7) == [("parameter-sync", 20, ("buffer-sync",))]  # nothing that was wrapped
    after = [[wrapped(3, module=5, parts=[5]), evaluated(20, 5, letters)] for letters in ("pq", "rs")]
    assert told(*after) == [("parameter-sync", 20, ())]


def test_a_rank_that_evaluates_more_models_is_compared_in_what_all_evaluate():
    """Rank 0 has an average that no other rank has; which of two like models it is, nobody can say."""
    own = trained(evaluated(20, 5, "pq"), evaluated(20, 6, "ab", wrapper=0))
    assert told(own, trained(evaluated(20, 5, "ab", wrapper=0))) == []
    assert told(own, trained(evaluated(20, 5, "rs"), evaluated(20, 6, "ab", wrapper=0)))[0][0] == "parameter-sync"
    assert told([*own, *trained(evaluated(20, 7, "tu"))], trained(evaluated(20, 5, "rs"))) == []


def test_an_average_whose_statistics_come_from_a_faulty_wrapper_is_no_second_finding():
    """A wrapper that does not broadcast its buffers, and a copy of these."""
    names = ev.Tensors(names=["t0", "t1"], digests=digests("ab"))
    buffers = ev.Tensors(names=["t0"], digests=digests("s"))
    built = {"parameters": names, "buffers": buffers, "buffer_owners": ["BatchNorm1d"], "broadcast_buffers": False}

    def rank(wrappers, averages):
        synced = {"wrapper": 0, "moment": "evaluation", "number": 0, "digests": digests(wrappers), "site": 18}
        own = [wrapped(3, **built), optimizer(0, 4), stepped(9, "gh")]
        return [*own, (ev.Synced, synced), evaluated(20, 5, "ab", averages)]

    assert told(rank("x", "p"), rank("y", "q")) == [("buffer-sync", 18, ())]
    assert told(rank("x", "p"), rank("x", "q")) == [("buffer-sync", 20, ())]


# --- two wrappers


def optimizer(number, line, wrappers=(0, 0), values=None, **more):
    """An optimizer of a parameter in each of these wrappers."""
    given = {"kind": "float32[1]", "reduced": True}
    parameters = [ev.Parameter(name=f"w{place}", wrapper=one, **given) for place, one in enumerate(wrappers)]
    fields = {"optimizer": number, "kind": "SGD", "site": line, "parameters": parameters, "sharded": False}
    return ev.Optimizer, {**fields, "values": digests(values or "ab"[: len(wrappers)]), **more}


def stepped(line, gradients, parameters="cd", number=0, of=0, **more):
    looked = {"gradients": digests(gradients), "parameters": digests(parameters)}
    return step(line, optimizer=of, number=number, place=number, **looked, **more)


RIGHT = {"forwards": 1, "armed": 1, "reached": 1, "backwards": 1}
BARE = {"forwards": 0, "armed": 0, "last_armed": False, "bare_site": 31}
"""The wrapper was gone round."""


def usage(first, second, after=(b"", b"")):
    return [ev.Usage(wrapper=w, after=a, **one) for w, (one, a) in enumerate(zip((first, second), after, strict=True))]


def test_two_wrappers_with_a_fault_each():
    """One is bypassed, the other's gradients are zeroed on one rank: both are reported, with what follows from each."""

    def rank(first, second, parameters, after):
        used = usage(BARE, RIGHT, (b"", after))
        return [
            wrapped(3),
            wrapped(5, wrapper=1),
            optimizer(0, 4, (0, 1)),
            stepped(9, first + second, parameters, usage=used),
        ]

    differing = [rank("g", "h", "cd", b"not"), rank("x", "y", "uv", b"reduced")]
    assert told(*differing) == [
        ("reducer-coverage", 31, ("gradient-sync", "parameter-sync")),
        ("gradient-sync", 9, ("parameter-sync",)),
    ]
    # A clip by the norm of all of them carries the first one's difference on to the other: one cause.
    clipped = [rank("g", "h", "cd", b"alike"), rank("x", "y", "uv", b"alike")]
    assert told(*clipped) == [("reducer-coverage", 31, ("gradient-sync", "parameter-sync"))]


def test_one_cause_for_two_wrappers_is_one_finding():
    """A step that one rank has left out."""

    def rank(gradients, parameters, backwards):
        own = [wrapped(3), wrapped(5, wrapper=1), optimizer(0, 4, (0, 1))]
        return [*own, stepped(9, gradients, parameters, backwards=backwards)]

    assert told(rank("gh", "cd", 1), rank("xy", "uv", 2)) == [("gradient-sync", 9, ("parameter-sync",))]


def test_parameters_that_one_reducer_does_not_know_and_a_wrapper_that_is_gone_round():
    """Two faults of two wrappers under one optimizer."""

    def rank(gradients, parameters):
        build, fields = optimizer(0, 4, (0, 1))
        unknown = ev.Parameter(name="late", kind="float32[1]", wrapper=0, reduced=False)
        parts = [unknown, fields["parameters"][1]]
        used = usage(RIGHT, BARE)
        return [
            wrapped(3), wrapped(5, wrapper=1), (build, {**fields, "parameters": parts}),
            stepped(9, gradients, parameters, usage=used),
        ]  # fmt: skip

    found = told(rank("gh", "cd"), rank("xy", "uv"))
    assert [(check, line) for check, line, _ in found] == [("reducer-coverage", 3), ("reducer-coverage", 31)]
    # Alone, each of them.
    assert [line for _, line, _ in told(rank("gh", "cd"), rank("xh", "ud"))] == [3]


def test_a_rate_that_differs_does_not_follow_from_a_wrapper_that_is_gone_round():
    """Nothing about gradients changes what a scheduler says."""

    def rank(gradients, parameters, rate):
        own = [wrapped(3), wrapped(5, wrapper=1), optimizer(0, 4, (0, 1))]
        return [*own, stepped(9, gradients, parameters, usage=usage(BARE, RIGHT), rates=[rate])]

    both = told(rank("gh", "cd", 0.1), rank("xh", "uv", 0.2))
    assert both == [
        ("reducer-coverage", 31, ("gradient-sync", "parameter-sync")),
        ("optimizer-sync", 9, ("parameter-sync",)),
    ]
    assert [check for check, *_ in told(rank("gh", "cd", 0.1), rank("xh", "ud", 0.1))] == ["reducer-coverage"]


def test_a_wrapper_that_differs_at_the_wrap_and_one_that_is_changed_later():
    """The second is found although the first was."""

    def rank(first, values):
        names = ev.Tensors(names=["w0"], digests=digests(first))
        own = [wrapped(3, parameters=names), wrapped(5, wrapper=1)]
        return [*own, optimizer(0, 4, (0, 1), values), stepped(9, "gh")]

    assert told(rank("a", "ab"), rank("z", "zy")) == [("initial-broadcast", 3, ()), ("initial-broadcast", 9, ())]
    # What differed at the wrap still does at the first step.
    assert told(rank("a", "ab"), rank("z", "zb")) == [("initial-broadcast", 3, ())]


def test_two_schedulers_that_are_stepped_too_often():
    """Each at its line, on whatever ranks it was seen."""

    def stepped_often(line, kind="StepLR"):
        return ev.Scheduled, {"kind": kind, "times": 2, "site": line, "bursts": 8}

    both = trained(stepped_often(12), stepped_often(14, "CosineAnnealingLR"))
    assert told(both, both) == [("optimizer-sync", 12, ()), ("optimizer-sync", 14, ())]
    assert told(trained(stepped_often(12)), trained(stepped_often(12))) == [("optimizer-sync", 12, ())]


# --- loaders


EVEN, ODD = list(range(0, 16, 2)), list(range(1, 16, 2))


def looped(number, passes, epochs=(0, 1), **more):
    """Passes through a sampler that knows of ranks: the samples of each."""
    made = [loader(**{"rank": number, "shuffle": True, "size": 64, **more})]
    for turn, (samples, epoch) in enumerate(zip(passes, epochs, strict=True)):
        made += through(samples, turn, epoch=epoch)
    return [wrapped(3), *made]


SAME = list(range(32))


def test_an_order_that_repeats_is_not_explained_by_ranks_that_overlap():
    """All ranks have the same samples, and in every epoch the same order: two mistakes, and two things to fix."""
    both = told(looped(0, [SAME, SAME], (0, 0)), looped(0, [SAME, SAME], (0, 0)))
    assert sorted(check for check, *_ in both) == ["epoch-reshuffle", "shard-partition"]


def test_one_rank_that_is_never_told_of_its_epoch_is_one_mistake():
    """It overlaps with the others, and repeats its order, since set_epoch was called on some ranks only."""
    moving = [list(range(0, 64, 2)), list(range(1, 64, 2))]
    still = [list(range(1, 64, 2))] * 2
    found = told(looped(0, moving, (0, 1)), looped(1, still, (0, 0)))
    assert found == [("shard-partition", found[0][1], ("epoch-reshuffle",))]


# --- the same line, the same check


def finding(subject, cause, **more):
    given = {"check": "gradient-sync", "severity": "error", "ranks": (1,), "expected": "this", "advice": "Do that."}
    where = CallSite(file="train.py", line=9, function="main")
    return Finding(
        **{**given, "subject": subject, "found": f"{subject} to differ", "cause": cause, "where": where, **more}
    )


def test_findings_of_one_line_are_one_where_their_cause_is():
    """In a loop over models, each may have a fault of its own."""
    from ddpcheck.verdict.grouping import grouped

    (one,) = grouped([finding("a", "clipped", links=("wrapper 0",)), finding("b", "clipped", ranks=(0,))])
    assert (one.count, one.ranks, one.found) == (2, (0, 1), "a to differ; and the same of b")
    assert [f.subject for f in grouped([finding("a", "clipped"), finding("b", "never reduced")])] == ["a", "b"]
    (one,) = grouped([finding("a", "clipped", step=0, count=4), finding("b", "clipped", step=0, count=3)])
    assert one.count == 4, "the same steps"


# --- files


def test_a_file_that_all_ranks_write_in_place():
    """That one rank alone writes it makes no save atomic: both are reported."""
    saves = [save("/job/last.pt", 10), save("/job/last.pt", 10, existed=True)]
    ranks = [trained(*saves), trained(*saves)]
    assert [check for check, *_ in told(*ranks)] == ["checkpoint-single-writer", "checkpoint-atomic-save"]
    assert [check for check, *_ in told(trained(*saves), trained())] == ["checkpoint-atomic-save"]
    once = [trained(save("/job/last.pt", 10)), trained(save("/job/last.pt", 10, existed=True))]
    assert [check for check, *_ in told(*once)] == ["checkpoint-single-writer"]
