"""Optimizers and their parameters are told from each other by what they step, whatever their number and order."""

from __future__ import annotations

import pytest

from ddpcheck import evidence as ev
from ddpcheck.judging import step_alignment
from tests.judging.judged import OF_STEPS, run_judged
from tests.judging.written import exchanged, step, transfers, world, wrapped


def digests(letters):
    """One tensor for each letter."""
    return b"".join(letter.encode() * step_alignment.WIDTH for letter in letters)


def optimizer(number, line, names="ab", wrapper=0, values="ab", **more):
    parameters = [ev.Parameter(name=name, kind="float32[1]", wrapper=wrapper, reduced=True) for name in names]
    fields = {"optimizer": number, "kind": "SGD", "site": line, "parameters": parameters, "sharded": False}
    return ev.Optimizer, {"values": digests(values), "groups": [len(names)], **fields, **more}


def stepped(gradients, parameters="cd", of=0, number=0, **more):
    looked = {"gradients": digests(gradients), "parameters": digests(parameters)}
    return step(9, optimizer=of, number=number, place=number, rates=[0.1], **looked, **more)


def judged(*ranks):
    return {one.check: one for one in run_judged(world(*ranks), *OF_STEPS)}


def found(*ranks):
    return [(f.check, f.ranks) for j in judged(*ranks).values() for f in j.findings]


def training(gradients="gh", of=0):
    return [wrapped(3), optimizer(of, 4), stepped(gradients, of=of)]


def trial(of, line=6):
    """An optimizer of a copy that lies in no wrapper."""
    return [optimizer(of, line, wrapper=None, values="xy"), stepped("pq", "rs", of=of)]


@pytest.mark.parametrize("before", [True, False])
@pytest.mark.parametrize("line", [6, 4])
def test_what_one_rank_tries_by_itself_is_nobodys_pair(before, line):
    """It has been built before or after the others, at a line of its own or by the same function."""
    tries = [*trial(5 if not before else 0, line), *trial(6 if not before else 1, line)]
    mine = training("gh", of=2)
    ours = [*(tries if before else ()), *mine, *(() if before else tries), transfers()]
    assert found(ours, [*training("gh"), transfers()]) == []
    assert judged(ours, [*training("gh"), transfers()])["gradient-sync"].checked == 1
    assert found(ours, [*training("gi"), transfers()]) == [("gradient-sync", (1,))]


def test_a_rank_that_builds_its_optimizer_at_another_line():
    """It steps the same wrapper: it is the same one."""
    other = [wrapped(3), optimizer(0, 7), stepped("gi")]
    assert found(training("gh"), other) == [("gradient-sync", (1,))]


def swapped(gradients, parameters="cd", **more):
    """The same with its parameters in the other order."""
    return [wrapped(3), optimizer(0, 4, "ba", values="ba", **more), stepped(gradients[::-1], parameters[::-1])]


def test_parameters_in_another_order():
    """A set of them may mix them up: names tell which is which."""
    assert found(training("gh"), swapped("gh")) == []
    assert judged(training("gh"), swapped("gh"))["gradient-sync"].checked == 1
    (check, finding) = next(
        (j.check, j.findings[0]) for j in judged(training("gh"), swapped("gi")).values() if j.findings
    )
    assert (check, finding.subject, finding.ranks) == ("gradient-sync", "b", (1,))


def test_parameters_that_cannot_be_told_apart_are_not_checked():
    """Of two groups each rank has the parameters in another one: nothing is held, and no reason is untrue."""
    ours = [wrapped(3), optimizer(0, 4, groups=[1, 1]), stepped("gh")]
    said = judged(ours, swapped("gi", groups=[1, 1]))
    assert [f for j in said.values() for f in j.findings] == []
    for check in ("gradient-sync", "parameter-sync", "reducer-coverage", "optimizer-sync"):
        assert (said[check].checked, said[check].skipped_because) == (
            0, "ddpcheck saw no parameter that is the same one on all ranks",
        )  # fmt: skip


def test_groups_of_more_parameters_than_there_are():
    """What they claim is not counted out."""
    ours, theirs = [[wrapped(3), optimizer(0, 4, names, groups=[1 << 62, 2]), stepped("gh")] for names in ("ab", "ba")]
    assert [f for j in judged(ours, theirs).values() for f in j.findings] == []


def test_optimizers_that_cannot_be_told_apart_are_not_checked():
    """Rank 1 steps a wrapper that rank 0 does not: neither "no wrapped parameter" nor "held" is true."""
    ours = [wrapped(3), wrapped(3, wrapper=1), optimizer(0, 4), stepped("gh")]
    other = [wrapped(3), wrapped(3, wrapper=1), optimizer(0, 4, wrapper=1), stepped("gi")]
    for check, one in judged(ours, other).items():
        if check != "initial-broadcast":
            assert one.checked == 0
            assert "could not match the optimizers of wrapped parameters" in one.skipped_because


@pytest.mark.parametrize(("more", "reason"), [
    ({"apart": True}, "ddpcheck saw a communication hook leave each rank its own gradients"),
    ({}, "ddpcheck saw the program exchange wrapped parameters between steps, and compares none in between"),
])  # fmt: skip
def test_steps_on_which_the_ranks_need_not_agree_are_not_held(more, reason):
    """What has no ground was not judged, by reducer-coverage either."""

    def place(p):
        return ev.Carried(place=p, of="parameter", inside=False, group="world", number=0, offset=0, alike=True)

    def rank(letters):
        moved = [] if more else [exchanged(1, place(0), place(1))]
        first, second = stepped(letters, letters), stepped(letters, letters, number=1)
        return [wrapped(3), optimizer(0, 4, **more), first, *moved, second]

    said = judged(rank("gh"), rank("ij"))
    assert [f for j in said.values() for f in j.findings] == []
    assert {said[c].skipped_because for c in ("gradient-sync", "reducer-coverage")} == {reason}
    assert said["reducer-coverage"].checked == 0
