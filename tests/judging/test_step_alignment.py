"""Steps are compared between ranks that train together, and a difference is explained."""

from __future__ import annotations

import pytest

from ddpcheck import evidence as ev
from tests.judging.judged import OF_STEPS, run_findings
from tests.judging.training_steps import digests, optimizer, stepped
from tests.judging.written import step, transfers, world, wrapped


def found(*ranks):
    """Each finding's check, ranks and cause."""
    return [(f.check, f.ranks, f.cause) for f in run_findings(world(*ranks), *OF_STEPS)]


def test_equal_steps_hold():
    """The same gradients and parameters on both ranks."""
    rank = [wrapped(3), optimizer(0, 4), stepped(9, "gh")]
    assert found(rank, rank) == []


def test_a_step_that_one_rank_left_out():
    """It is told by the number of its backward() calls."""
    ours = [wrapped(3), optimizer(0, 4), stepped(9, "gh"), stepped(9, "ij", "ef", 1)]
    other = [wrapped(3), optimizer(0, 4), stepped(9, "gh"), stepped(9, "kl", "mn", 1, backwards=2)]
    (check, ranks, cause), (consequence, _, _) = found(ours, other)
    assert (check, ranks, consequence) == ("gradient-sync", (1,), "parameter-sync")
    assert "(1 on rank 0, 2 on rank 1): one of them has left out a step" in cause


@pytest.mark.parametrize(("scales", "expected"), [
    ((8.0, 2.0), "then divided by gradient scales that are not: 8 on rank 0, 2 on rank 1"),
    ((8.0, None), "then divided by gradient scales that are not: 8 on rank 0, none on rank 1"),
    ((8.0, 8.0), "(clipping, scaling or zeroing on one rank alone)"),
])  # fmt: skip
def test_gradients_that_were_unscaled_apart(scales, expected):
    """Equal after backward(), and not at the step: another scale on a rank is the cause, where there is one."""
    usage = [ev.Usage(wrapper=0, forwards=1, armed=1, reached=1, backwards=1, after=b"same")]
    ranks = [
        [wrapped(3), optimizer(0, 4), stepped(9, letters, scale=scale, usage=usage)]
        for letters, scale in zip(("gh", "ij"), scales, strict=True)
    ]
    (check, _, cause), *others = found(*ranks)
    assert (check, cause.endswith(expected)) == ("gradient-sync", True)
    assert [name for name, _, _ in others] == (["optimizer-sync"] if scales[0] != scales[1] else [])


GROUPS = ["0,1#1", "0,1#1", "2,3#1", "2,3#1"]


@pytest.mark.parametrize(("third", "expected"), [("gh", []), ("xh", [("gradient-sync", (3,))])])
def test_each_group_of_ranks_is_compared_by_itself(third, expected):
    """Two models of other sizes, at other rates, on two ranks each."""
    ranks = [
        [wrapped(3, group=group), optimizer(0, 4, "ab"), stepped(9, "gh", rates=[0.1])]
        if number < 2
        else [wrapped(3, group=group), optimizer(0, 4, "xyz"), stepped(9, "ghi", "uvw", rates=[0.2])]
        for number, group in enumerate(GROUPS)
    ]
    ranks[3] = [wrapped(3, group=GROUPS[3]), optimizer(0, 4, "xyz"), stepped(9, third + "i", "uvw", rates=[0.2])]
    assert [(check, who) for check, who, _ in found(*ranks)] == expected


def training(inner, again):
    """Steps of one optimizer, and between them others, of parameters in no wrapper, made anew at one line."""
    records = [wrapped(3), optimizer(0, 4), stepped(9, "gh")]
    for turn in range(1, again + 1):
        records += [optimizer(turn, 6, "a", wrapper=None), stepped(7, inner, "c", of=turn)]
        records += [stepped(9, "gh", number=turn)]
    return [*records, transfers()]


def test_what_a_rank_optimizes_for_itself_is_its_own():
    """Optimizers that one line makes anew, between steps of another one, have nothing to agree on."""
    assert found(training("p", 2), training("q", 2)) == []


def test_parameters_that_an_optimizer_gets_later():
    """Each stretch of steps is compared by the parameters that there are in it."""

    def rank(last):
        start = [wrapped(3), optimizer(0, 4, "a"), stepped(9, "g", "c")]
        return [*start, optimizer(0, 4, "ab"), stepped(9, "h" + last, "d" + last, number=1)]

    assert found(rank("i"), rank("i")) == []
    assert [(check, ranks) for check, ranks, _ in found(rank("i"), rank("j"))] == [
        ("gradient-sync", (1,)),
        ("parameter-sync", (1,)),
    ]
    # What comes later may have come from anywhere: who reduces it is what counts.
    other = [wrapped(3), optimizer(0, 4, "a"), stepped(9, "g", "c"), optimizer(0, 4, "xy"), stepped(9, "hi", "di", 1)]
    assert found(rank("i"), other) == []


def test_ranks_that_step_apart_on_purpose():
    """Post-local SGD averages parameters now and then; until then they differ."""
    ranks = [[wrapped(3), optimizer(0, 4, apart=True), stepped(9, letters, letters)] for letters in ("gh", "ij")]
    assert [check for check, _, _ in found(*ranks)] == []
    ranks = [[wrapped(3), optimizer(0, 4), stepped(9, letters, letters)] for letters in ("gh", "ij")]
    assert [check for check, _, _ in found(*ranks)] == ["gradient-sync", "parameter-sync"]


def messages(*ranks):
    """Each finding's check, what was found, and its cause."""
    checks = [check for check in OF_STEPS if check != "reducer-coverage"]
    return [(f.check, f.found, f.cause) for f in run_findings(world(*ranks), *checks)]


APART = "2 of 2 parameters to differ after step 3: w0, w1"
BLIND = "; not every step was looked at in full {}, so that they may have parted in any of these"
ALONE = "they were changed on one rank alone, outside of the optimizer"


def unlooked(number):
    return step(9, number=number, place=number)


def in_part(number):
    return stepped(9, "gh", "cd", number, whole=False)


def whole(number):
    return stepped(9, "gh", "cd", number)


@pytest.mark.parametrize(
    ("before", "shown", "cause"),
    [
        ([whole(0), whole(1), whole(2)], APART, ALONE),
        ([whole(0), whole(1), unlooked(2)], APART + BLIND.format("since step 1"), ""),
        ([whole(0), whole(1)], APART + BLIND.format("since step 1"), ""),
        ([whole(0), unlooked(1), in_part(2)], APART + BLIND.format("since step 0"), ""),
        ([unlooked(0), in_part(2)], APART + BLIND.format("until then"), ""),
    ],
)
def test_parameters_that_parted_in_steps_that_were_not_looked_at(before, shown, cause):
    """No cause rests on what nobody has seen."""
    ranks = [[wrapped(3), optimizer(0, 4), *before, stepped(9, "gh", letters, 3)] for letters in ("ef", "xy")]
    assert messages(*ranks) == [("parameter-sync", shown, cause)]


def test_state_that_parted_in_steps_that_were_not_looked_at():
    """Moments differ where gradients did, in a step before; a rate that differs is a cause in itself."""

    def rank(letters, *between, **more):
        last = stepped(9, "gh", letters, 3, state={"exp_avg": digests(letters)}, **more)
        return [wrapped(3), optimizer(0, 4), whole(0), *between, last]

    between = [unlooked(1), unlooked(2)]
    blind = BLIND.format("since step 0")
    assert messages(rank("ef", *between), rank("xy", *between)) == [
        ("parameter-sync", APART + blind, ""), ("optimizer-sync", "exp_avg to differ" + blind, ""),
    ]  # fmt: skip
    seen = [whole(1), whole(2)]
    assert [cause for _, _, cause in messages(rank("ef", *seen), rank("xy", *seen))] == [
        "the optimizers' states differ", "it was loaded or reset on some ranks alone",
    ]  # fmt: skip
    rates = messages(rank("ef", *between, rates=[0.1]), rank("xy", *between, rates=[0.2]))
    assert rates[0] == ("parameter-sync", APART, "their learning rates differ")
