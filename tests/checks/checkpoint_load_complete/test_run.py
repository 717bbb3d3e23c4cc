"""The judge of loads, over evidence written by hand: whether all of a checkpoint is taken, and on all ranks."""

from __future__ import annotations

import pytest

from ddpcheck import evidence as ev
from ddpcheck.judging.world import World
from tests.judging.judged import run_findings
from tests.judging.judged_files import FILES, ask, at
from tests.judging.written import call, load, loaded, query, raised, rank, save, step, world, wrapped

LOCATION, COMPLETE = "checkpoint-map-location", "checkpoint-load-complete"


def test_a_complete_load():
    """All keys, on all ranks."""
    judged = ask(COMPLETE, *[[load("/job/a.pt", 5), loaded("module", 6)]] * 2)
    assert (judged.checked, judged.findings) == (2, ())


@pytest.mark.parametrize(("missing", "unexpected", "cause"), [
    (["a", "b", "c"], ["module.a", "module.b", "module.c"], "'module.', which DistributedDataParallel"),
    (["a"], ["_orig_mod.a"], "'_orig_mod.', which torch.compile"),
    (["module.a"], ["a"], "'module.', which DistributedDataParallel"),
    (["a", "b", "c", "d"], ["w", "x"], "the names in the checkpoint are not those of the module"),
])  # fmt: skip
def test_names_that_do_not_fit(missing, unexpected, cause):
    """With strict=False nothing is said, and nothing is loaded."""
    names = {"strict": False, "missing": missing, "unexpected": unexpected}
    loads = [loaded("module", 6, thrown_away=True, **names)]
    (finding,) = ask(COMPLETE, loads, loads).findings
    assert (finding.severity, finding.ranks, finding.where) == ("error", (0, 1), at(6))
    assert cause in finding.cause
    assert finding.found.endswith("with strict=False no error reports them")
    # Who looks at the missing keys may mean it; but not that a prefix is in the way.
    looked_at = ask(COMPLETE, *[[loaded("module", 6, **names)]] * 2).findings
    assert [f.severity for f in looked_at] == ["warning"] * ("'" in cause)


def test_names_that_a_load_was_not_given():
    """It has not written them: that says nothing against the program, and does not hold."""
    whole, stale = loaded("module", 5), loaded("module", 6, strict=False, missing=["w"], unexpected=["old.w"])
    judged = ask(COMPLETE, [whole, stale], [whole])
    assert (judged.checked, judged.findings) == (0, ())
    assert judged.skipped_because.startswith("a load with strict=False was not given 1 of 4 parameters and buffers")


def test_names_under_which_a_module_is_given_itself():
    """Such a load writes nothing: only torch.distributed.checkpoint is known to have filled these tensors before."""
    same = loaded("module", 6, itself=["w"])
    judged = ask(COMPLETE, [same])
    assert (judged.checked, judged.findings) == (0, ())
    assert judged.skipped_because.startswith("a load gave 1 of 4 parameters and buffers of a Net their own memory")
    began = ev.LoadBegan, {"path": "/job/step-1", "site": 5}
    assert ask(COMPLETE, [began, same]).checked == 1
    assert ask(COMPLETE, [began, step(5), same]).checked == 0
    by_torch = ev.Site, {"id": 106, "file": "train.py", "line": 6, "function": "main", "text": "set(net, state)",
                         "through": ("torch.distributed.checkpoint: set_model_state_dict",)}  # fmt: skip
    assert ask(COMPLETE, [by_torch, loaded("module", 106, itself=["w"])]).checked == 1


def test_loads_of_no_module():
    """What goes into an optimizer, or into a module that holds nothing, writes no parameter."""
    judged = ask(COMPLETE, [loaded("optimizer", 5), loaded("scheduler", 6), loaded("module", 7, total=0)])
    assert (judged.checked, judged.skipped_because) == (0, "ddpcheck saw no load_state_dict of a module")


@pytest.mark.parametrize(("missing", "unexpected"), [
    (["head.weight", "head.bias"], []),
    (["head.weight", "head.bias"], ["classifier.weight", "classifier.bias"]),
    (["a", "b", "c"], []),
    ([], ["decoder.weight"]),
])  # fmt: skip
def test_parts_that_are_left_out_on_purpose(missing, unexpected):
    """A new head, adapters, and a part of a larger model."""
    names = {"missing": missing, "unexpected": unexpected, "fitting": 1, "thrown_away": True}
    loads = [loaded("module", 6, strict=False, **names)]
    assert ask(COMPLETE, loads, loads).findings == ()


@pytest.mark.parametrize(
    ("thrown_away", "spare", "expected"),
    [
        (True, ["float32[2]", "float32[3]"], ["warning"]),
        (True, ["float32[3]"], ["warning"]),
        (True, ["float32[3]", "float32[3]"], []),
        (True, ["float16[2]"], []),
        (False, ["float32[2]", "float32[3]"], []),
    ],
)
def test_spare_tensors_of_the_shapes_that_are_missing(thrown_away, spare, expected):
    """They may be the same under other names; where shapes differ, some of it may be all that was wanted."""
    kinds = {"missing_kinds": ["float32[3]", "float32[2]", "int64[]"], "unexpected_kinds": spare}
    names = {"missing": ["a", "b", "c"], "unexpected": ["x", "y"][: len(spare)], "fitting": 1, **kinds}
    loads = [loaded("module", 6, strict=False, thrown_away=thrown_away, **names)]
    assert [f.severity for f in ask(COMPLETE, loads, loads).findings] == expected


@pytest.mark.parametrize(("outdated", "expected"), [(True, ["state-kept-without-copy"]), (False, [])])
def test_own_memory_that_was_written_to(outdated, expected):
    loads = [loaded("module", 6, itself=["a", "b"], outdated=outdated)]
    assert [f.rule.partition("/")[2] for f in ask(COMPLETE, loads, loads).findings] == expected
    began = ev.LoadBegan, {"path": "/job/step-1", "site": 5}
    assert ask(COMPLETE, [began, *loads]).findings == ()  # it was filled before


def test_a_load_that_is_refused():
    """load_state_dict itself says so, and ends the program."""
    message = 'Error(s) in loading state_dict for Net:\n\tMissing key(s): "a". Unexpected key(s): "module.a". '
    (finding,) = ask(COMPLETE, *[[raised(message, 7)]] * 2).findings
    assert (finding.ranks, finding.where, finding.links, finding.subject) == ((0, 1), at(7), ("stop",), "Net")
    assert "'module.'" in finding.cause
    (finding,) = ask(COMPLETE, [raised("Error(s) in loading state_dict for Net:\n\tsize mismatch", 7)], []).findings
    assert finding.cause == ""


def resumed(*taken, keys=("net", "adam"), **more):
    """A rank that saves, and goes on from what it has saved."""
    given = {"keys": list(keys), "optimizers": ["adam"], **more}
    return [save("/job/a.pt", 3, **given), call(1, 4), load("/job/a.pt", 5, **given), *taken, step(9)]


NET, ADAM = loaded("module", 6), loaded("optimizer", 7)


def test_an_optimizer_that_begins_anew():
    """Its moments lie in the checkpoint, and nobody takes them."""
    (finding,) = ask(COMPLETE, resumed(NET), []).findings
    assert (finding.severity, finding.ranks, finding.where) == ("warning", (0,), at(5))
    assert "('adam')" in finding.found


@pytest.mark.parametrize(
    "records",
    [
        resumed(NET, ADAM),
        resumed(ADAM, NET),
        resumed(NET)[:-1],  # an evaluation
        resumed(),  # nothing of it is taken
        resumed(NET, optimizers=[]),
        # another program's checkpoint, to begin from
        [load("/job/large.pt", 5, keys=["net", "adam"], optimizers=["adam"]), NET, step(9), save("/job/a.pt", 3)],
    ],
)
def test_optimizers_that_are_as_they_should_be(records):
    """Loaded, not needed, empty, or not this training's."""
    assert ask(COMPLETE, records, []).findings == ()


HELD = {"wrapped": True, "wrapper": 0, "digest": b"a"}


def test_one_rank_loads_after_the_wrap():
    """DDP does not send it to the others."""
    (finding,) = ask(COMPLETE, [wrapped(2), loaded("module", 6, **HELD), step(9)], [wrapped(2), step(9)]).findings
    assert (finding.ranks, finding.where, finding.links) == ((0,), at(6), ("wrapper 0",))
    assert finding.found.startswith("only rank 0 loading, after the wrap")


def test_each_rank_loads_another_file():
    """Ranks that do not agree on the best checkpoint."""
    ranks = [
        [wrapped(2), load(f"/job/best-{r}.pt", 5), loaded("module", 6, **HELD | {"digest": b"%d" % r}), step(9)]
        for r in range(2)
    ]
    (finding,) = ask(COMPLETE, *ranks).findings
    assert finding.found == "each rank loading another state: rank 0 from best-0.pt, rank 1 from best-1.pt"


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ([loaded("module", 6, **HELD), step(9)],) * 2,
        ([loaded("module", 6), step(9)], [step(9)]),  # before the wrap
        ([step(4), loaded("module", 6, **HELD)], [step(4)]),  # to evaluate
        ([loaded("module", 6, **HELD), call(1, 7, "broadcast"), step(9)], [call(1, 7, "broadcast"), step(9)]),
        ([loaded("module", 6, **HELD), call(1, 7, "ddp-construct"), step(9)], [call(1, 7, "ddp-construct"), step(9)]),
    ],
)
def test_loads_that_leave_the_ranks_equal(first, second):
    """On all ranks, before the wrap, after the training, or sent to the others by hand."""
    assert ask(COMPLETE, [wrapped(2), *first], [wrapped(2), *second]).findings == ()


@pytest.mark.parametrize("op", ["all_reduce", "broadcast_object_list"])
def test_what_says_nothing_of_a_load_on_one_rank(op):
    """A metric that is reduced, or an object that is sent, brings no weights to the ranks that loaded none."""
    first = [wrapped(2), loaded("module", 6, **HELD), call(1, 7, op), step(9)]
    second = [wrapped(2), call(1, 7, op), step(9)]
    assert [f.rule for f in ask(COMPLETE, first, second).findings] == [f"{COMPLETE}/load-on-some-ranks"]
    # Where the parameters are seen to be equal all the same, the program has copied them.
    first[-1] = second[-1] = step(9, parameters=b"12345678")
    assert ask(COMPLETE, first, second).findings == ()


def test_a_race_on_another_file():
    """It explains nothing of what is loaded."""
    first = [wrapped(2), save("/job/other.pt", 3), loaded("module", 6, **HELD), step(9)]
    second = [wrapped(2), query("/job/other.pt", 5, False), step(9)]
    assert [f.rule for f in ask(COMPLETE, first, second).findings] == [f"{COMPLETE}/load-on-some-ranks"]


def test_groups_of_ranks_load_for_themselves():
    """Each group trains a model of its own; within a group, the ranks load alike."""

    def ranks(*digests):
        groups = ["0,1#1", "0,1#1", "2,3#1", "2,3#1"]
        return [
            [wrapped(2, group=group), loaded("module", 6, **HELD | {"digest": digest}), step(9)]
            for group, digest in zip(groups, digests, strict=True)
        ]

    assert ask(COMPLETE, *ranks(b"a", b"a", b"b", b"b")).findings == ()
    (finding,) = ask(COMPLETE, *ranks(b"a", b"a", b"b", b"c")).findings
    assert finding.ranks == (2, 3)


def test_a_race_explains_what_the_ranks_have_loaded():
    """A rank that did not find the file has loaded nothing: that is told of as the race that it is."""
    first = [
        wrapped(2),
        save("/job/a.pt", 3),
        query("/job/a.pt", 5, True),
        load("/job/a.pt", 6),
        loaded("module", 6, **HELD),
        step(9),
    ]
    second = [wrapped(2), query("/job/a.pt", 5, False), step(9)]
    findings = run_findings(world(first, second), *FILES)
    assert [(f.check, "wrapper 0" in f.links) for f in findings] == [("checkpoint-read-after-write", True)]


def test_a_rank_of_which_nothing_is_known():
    """Where a rank is missing, nobody can say that it has not loaded."""
    over = World([rank(0, [loaded("module", 6, **HELD), step(9)])], 2)
    assert run_findings(over, *FILES) == []
    assert isinstance(over.ranks[0].of(ev.StateLoaded)[0], ev.StateLoaded)


def test_a_rank_whose_evidence_stopped_early_may_have_loaded():
    """The load would have come after what is on record."""
    over = world([wrapped(2), loaded("module", 6, **HELD), step(9)], [wrapped(2), step(9)])
    assert [f.rule for f in run_findings(over, *FILES)] == ["checkpoint-load-complete/load-on-some-ranks"]
    over.ranks[1].process.gap = "there was no room for more"
    assert run_findings(over, *FILES) == []
