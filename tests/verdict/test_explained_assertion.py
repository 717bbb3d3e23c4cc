"""Why an assertion is violated, by the ranks' own records: the cause and the fix that a run would report."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from ddpcheck import evidence as ev
from ddpcheck.verdict.explained_assertion import explained
from ddpcheck.vocabulary.model import CallSite, Finding
from tests.judging.test_model_parts import TENSORS, modules
from tests.judging.training_steps import optimizer, stepped
from tests.judging.written import frames, transfers, wrapped

FOUND = Finding(
    check="gradient-sync",
    severity="error",
    ranks=(1,),
    subject="w0",
    expected="all ranks to hold the same gradients",
    found="w0 to differ",
    advice="Treat gradients alike on every rank.",
    where=CallSite(file="test_it.py", line=40, function="test_it"),
)


def usage(**more):
    given = {"wrapper": 0, "forwards": 1, "armed": 1, "reached": 1, "backwards": 1, "last_armed": True, **more}
    return [ev.Usage(**given)]


BUILT, LINE = [wrapped(3), optimizer(0, 4)], (ev.AtLine, {})
ARMED = usage()
BYPASSED = usage(forwards=0, armed=0, reached=0, last_armed=False, bare_site=7)
WITHIN_NO_SYNC = usage(armed=0, reached=0, no_sync=1, no_sync_forwards=1, last_armed=False, no_sync_site=6)


def evidence(*ranks, letters=("gh", "ij"), also=()):
    """What ranks with one wrapper have kept, at a line where they hold these gradients."""
    return [
        frames(number, [wrapped(3), optimizer(0, 4), stepped(9, own, **more), transfers(), *also])
        for number, (own, more) in enumerate(zip(letters, ranks, strict=True))
    ]


@pytest.mark.parametrize(
    ("one", "other", "cause", "line"),
    [
        ({"usage": BYPASSED}, {"usage": BYPASSED}, "the loss came from `.module`", 7),
        ({"usage": WITHIN_NO_SYNC}, {"usage": WITHIN_NO_SYNC}, "no_sync()", 6),
        (
            {"usage": ARMED},
            {"usage": usage(backwards=2), "backwards": 2},
            "(1 on rank 0, 2 on rank 1)",
            9,
        ),
    ],
)
def test_what_was_seen_before_is_the_cause(one, other, cause, line):
    """The finding stays what it was; why it is so, the fix and the line are those of a run."""
    (finding,) = explained([FOUND], evidence(one, other))
    assert (finding.check, finding.ranks, finding.found, finding.where) == (
        "gradient-sync",
        (1,),
        FOUND.found,
        FOUND.where,
    )
    assert cause in finding.cause
    assert finding.advice != FOUND.advice
    assert finding.proof[0][1] == CallSite(file="train.py", line=line, function="main")


def test_what_nothing_explains_is_told_as_it_is():
    """Records that show no fault change nothing, and neither do those of some ranks alone."""
    alike = evidence({"usage": ARMED}, {"usage": ARMED}, letters=("gh", "gh"))
    assert explained([FOUND], alike) == (FOUND,)
    told = evidence({"usage": BYPASSED}, {"usage": BYPASSED})
    assert explained([FOUND], [told[0], b""]) == (FOUND,)


def test_what_was_made_good_is_no_cause():
    """A step that went round the wrapper, long ago, and ranks that are at different steps."""
    early = {"usage": BYPASSED, "number": 0}
    late = {"usage": ARMED, "number": 1}
    told = [
        frames(rank, [*BUILT, stepped(9, first, **early), LINE, stepped(9, second, **late), transfers()])
        for rank, (first, second) in enumerate((("gh", "kl"), ("ij", "mn")))
    ]
    assert "the wrapper" not in explained([FOUND], told)[0].cause
    ahead = frames(0, [*BUILT, stepped(9, "gh", **early), LINE, stepped(9, "gh", **late), transfers()])
    behind = frames(1, [*BUILT, LINE, stepped(9, "ij", **early), transfers()])
    assert explained([FOUND], [ahead, behind]) == (FOUND,)


def test_a_fault_of_ours_in_a_rank_is_said():
    """What a probe has failed at is not known: no cause, and whose fault that is."""
    failed = (ev.Defect, {"text": "Traceback …\nTypeError: unhashable type: 'O'\n"})
    told = evidence({"usage": BYPASSED}, {"usage": BYPASSED}, also=[failed])
    (finding,) = explained([FOUND], told)
    assert not finding.cause
    assert finding.advice.endswith(
        "(A fault of ddpcheck's own: the cause could not be looked for, TypeError: unhashable type: 'O'.)"
    )


def test_what_this_torch_does_not_show_is_no_cause():
    """A rank whose torch lacks what a check rests on says so, and that check explains nothing."""
    seam = "torch.nn.parallel.DistributedDataParallel._post_forward"
    missing = (ev.Missing, {"seam": seam, "of": "torch 9.0"})
    told, lacking = (evidence({"usage": BYPASSED}, {"usage": BYPASSED}, also=also) for also in ([], [missing]))
    assert "the loss came from" in explained([FOUND], told)[0].cause
    assert explained([FOUND], lacking) == (FOUND,)


def test_a_check_is_explained_by_what_it_may_follow_from_alone():
    """Whatever else the records show is another matter."""
    told = evidence({"usage": BYPASSED}, {"usage": BYPASSED})
    other = replace(FOUND, check="shard-partition")
    assert explained([other], told) == (other,)


def test_a_fault_of_ours_leaves_the_finding_as_it_is(monkeypatch):
    """What cannot be explained is reported all the same, and whose fault that is."""

    def broken(check, name):
        raise KeyError("wrapper 7")

    monkeypatch.setattr("ddpcheck.verdict.explained_assertion.has_part", broken)
    (found,) = explained([FOUND], evidence(*[{"usage": ARMED}] * 2))
    assert replace(found, advice="") == replace(FOUND, advice="")
    assert found.advice.startswith(FOUND.advice)
    assert "A fault of ddpcheck's own" in found.advice
    assert "KeyError: 'wrapper 7'" in found.advice


def test_a_parameter_s_module_is_named():
    """Also where nothing explains the finding; of a parameter that no wrapper has, nothing is said."""
    records = [frames(number, [wrapped(3, **TENSORS), modules(), transfers()]) for number in range(2)]
    (finding,) = explained([replace(FOUND, subject="blocks.0.q.bias")], records)
    assert (finding.module.path, finding.module.within, finding.module.set_by.line) == ("blocks.0.q", "Block", 11)
    assert explained([FOUND], records) == (FOUND,)
