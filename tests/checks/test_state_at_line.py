"""The judges of equal state, over evidence written by hand."""

from __future__ import annotations

import math

import msgspec
import pytest

from ddpcheck.checks.state_at_line import EXAMINED, ModelFacts, TensorFacts, WorstDifference
from ddpcheck.vocabulary.model import Finding, Question
from tests.judging.judged import asserted

CHECKS = ("initial-broadcast", "gradient-sync", "parameter-sync")


def tensor(digest="same", shape=(2, 3), dtype="float32", **more):
    return TensorFacts(digest=digest, shape=shape, dtype=dtype, **more)


ABSENT = TensorFacts(present=False)


def model(more=None, **tensors):
    """One rank's model; ``more`` holds tensors whose names are no identifiers."""
    names = ("wrapped", "atol", "rtol")
    facts = {name: tensors.pop(name) for name in names if name in tensors}
    return ModelFacts(tensors=tensors | (more or {}), **facts)


def worst(size=0.5, place=(1, 2), elements=3, of=6, **more):
    return WorstDifference(size=size, place=place, mine="1.5", reference="1", elements=elements, of=of, **more)


def ask(check, models, *rounds):
    """The judge's answer, given the ranks' facts and answers as they come off the wire."""
    plain = [msgspec.to_builtins(one) for one in models]
    return asserted(check, plain, [[msgspec.to_builtins(answer) for answer in answers] for answers in rounds])


def asked_for(question):
    """The names of the tensors that a question is about."""
    return [name for name, _, _ in question.about["copies"]]


def differ(check, models, *compared):
    """The one finding, where the ranks' answers to the comparison are ``compared``."""
    (finding,) = ask(check, models, [None] * len(models), compared)
    return finding


# --- silent


@pytest.mark.parametrize("check", CHECKS)
@pytest.mark.parametrize("world_size", [1, 2, 4])
def test_equal_digests_hold(check, world_size):
    """Ranks with the same digests hold the same state, and nobody is asked for elements."""
    assert ask(check, [model(w=tensor("a"), b=tensor("b"))] * world_size) == ()


@pytest.mark.parametrize("check", CHECKS)
def test_one_rank_always_agrees_with_itself(check):
    """With one rank there is nothing to differ from, whatever its state."""
    assert ask(check, [model(w=tensor(), wrapped=False)]) == ()


def test_a_parameter_without_a_gradient_everywhere_holds():
    """A parameter that has no gradient on any rank was not used, and does not differ."""
    assert ask("gradient-sync", [model(w=tensor(), unused=ABSENT)] * 2) == ()


def test_the_order_of_the_tensors_does_not_matter():
    """Tensors are compared by name."""
    assert ask("parameter-sync", [model(a=tensor("1"), b=tensor("2")), model(b=tensor("2"), a=tensor("1"))]) == ()


def test_other_bits_of_the_same_number_hold():
    """-0.0 against 0.0, or another NaN: digests differ and no element does."""
    models = [model(w=tensor("a")), model(w=tensor("b"))]
    assert ask("parameter-sync", models, [None, None], [{}, {"w": worst(size=0.0, elements=0)}]) == ()


def test_a_difference_within_the_tolerance_holds():
    """Elements that differ by no more than is allowed are equal."""
    models = [model(w=tensor("a"), atol=1e-3), model(w=tensor("b"), atol=1e-3)]
    assert ask("gradient-sync", models, [None, None], [{}, {"w": worst(size=1e-4, elements=0)}]) == ()


# --- what it asks


@pytest.mark.parametrize("check", CHECKS)
def test_elements_are_asked_for_only_where_digests_differ(check):
    """First the reference writes the differing tensors down, then the others compare theirs with it."""
    models = [model(w=tensor("a"), same=tensor()), model(w=tensor("b"), same=tensor())]
    about = {"copies": [["w", 0, [0, 1]]], "atol": 0.0, "rtol": 0.0}
    assert ask(check, models) == Question(ask="write", about=about)
    assert ask(check, models, [None, None]) == Question(ask="compare", about=about)


def test_the_tolerance_goes_with_the_question():
    """The ranks that compare know how much is allowed."""
    models = [model(w=tensor("a"), atol=0.5, rtol=0.25), model(w=tensor("b"), atol=0.5, rtol=0.25)]
    about = ask("parameter-sync", models).about
    assert (about["atol"], about["rtol"]) == (0.5, 0.25)


@pytest.mark.parametrize(
    ("digests", "reference"),
    [("ab", 0), ("ba", 0), ("abb", 1), ("bab", 0), ("bba", 0), ("abc", 0), ("abcb", 1), ("aabb", 0)],
)
@pytest.mark.parametrize("check", ["gradient-sync", "parameter-sync"])
def test_the_reference_is_the_majority(check, digests, reference):
    """The ranks are compared with the most common state, held by the lowest rank that has it."""
    assert ask(check, [model(w=tensor(d)) for d in digests]).about["copies"][0][1] == reference


def test_the_majority_is_one_of_whole_states():
    """What is most common is judged by all differing tensors together."""
    states = [("x", "1"), ("x", "2"), ("y", "2"), ("y", "2")]
    models = [model(a=tensor(a), b=tensor(b)) for a, b in states]
    assert ask("parameter-sync", models).about["copies"][0][1] == 2


def test_the_reference_of_a_broadcast_is_rank_zero():
    """DDP broadcasts rank 0's state, so that is what all should hold, even against a majority."""
    assert ask("initial-broadcast", [model(w=tensor(d)) for d in "abb"]).about["copies"][0][1] == 0


def many(digest, count=EXAMINED + 8, **more):
    return model(more={f"w{n}": tensor(digest) for n in range(count)}, **more)


def test_only_so_many_tensors_are_examined():
    """Of a model that differs everywhere, the first tensors are compared element by element."""
    names = asked_for(ask("parameter-sync", [many("a"), many("b")]))
    assert names == [f"w{n}" for n in range(EXAMINED)]


def test_all_tensors_are_examined_where_a_tolerance_decides():
    """With a tolerance, a digest says nothing: every differing tensor is compared."""
    models = [many("a", atol=1.0), many("b", atol=1.0)]
    assert len(asked_for(ask("parameter-sync", models))) == EXAMINED + 8


def test_tensors_beyond_the_examined_are_counted():
    """The finding counts the tensors whose digests differ, also those that were not examined."""
    compared = {f"w{n}": worst() for n in range(EXAMINED)}
    finding = differ("parameter-sync", [many("a"), many("b")], {}, compared)
    assert finding.count == EXAMINED + 8
    assert finding.found.startswith(f"{EXAMINED + 8} of {EXAMINED + 8} parameters to differ")


def test_unexamined_tensors_do_not_pass_for_equal():
    """Where the examined tensors turn out equal, the others are not taken to be so, too."""
    compared = {f"w{n}": worst(size=0.0, elements=0) for n in range(EXAMINED)}
    assert ask("parameter-sync", [many("a"), many("b")], [None, None], [{}, compared]) != ()


def test_the_next_tensors_are_asked_for_where_the_first_are_equal():
    """Portion by portion, each written and compared, until one differs; the rest is counted."""
    models = [many(d, 2 * EXAMINED + 3) for d in "ab"]
    equal, other = worst(size=0.0, elements=0), worst()
    first = [[None, None], [{}, {f"w{n}": equal for n in range(EXAMINED)}]]
    second = [f"w{n}" for n in range(EXAMINED, 2 * EXAMINED)]
    for answers, verb in ((first, "write"), ([*first, [None, None]], "compare")):
        question = ask("parameter-sync", models, *answers)
        assert (question.ask, asked_for(question)) == (verb, second)
    (finding,) = ask("parameter-sync", models, *first, [None, None], [{}, {second[0]: other, second[1]: equal}])
    assert (finding.subject, finding.count) == (second[0], 1 + 3)
    last = [f"w{n}" for n in range(2 * EXAMINED, 2 * EXAMINED + 3)]
    rounds = [*first, [None, None], [{}, dict.fromkeys(second, equal)]]
    assert asked_for(ask("parameter-sync", models, *rounds)) == last
    assert ask("parameter-sync", models, *rounds, [None, None], [{}, dict.fromkeys(last, equal)]) == ()


# --- nothing seen


@pytest.mark.parametrize("check", CHECKS)
@pytest.mark.parametrize("models", [[model()] * 2, [model(w=ABSENT, v=ABSENT)] * 2, [model()]])
def test_a_check_that_saw_nothing_does_not_pass(check, models):
    """A model without tensors, or without a gradient on any rank, is a violation: nothing was checked."""
    (finding,) = ask(check, models)
    assert finding.severity == "error"
    assert finding.subject == "the model"
    assert finding.ranks == tuple(range(len(models)))
    assert "on any rank: nothing was checked" in finding.found


def test_a_model_without_gradients_is_told_when_to_ask():
    """The fix for no gradients is the place of the call."""
    (finding,) = ask("gradient-sync", [model(w=ABSENT)] * 2)
    assert finding.found == "no gradient on any rank: nothing was checked"
    assert finding.advice == "Call it after backward() and before zero_grad()."


# --- tensors that cannot be compared


def test_a_gradient_on_some_ranks_only():
    """A parameter that has a gradient on some ranks only is named, with the ranks that are the odd ones."""
    models = [model(w=tensor()), model(w=ABSENT), model(w=tensor())]
    assert ask("gradient-sync", models) == (
        Finding(
            check="gradient-sync",
            rule="gradient-sync/different-gradients",
            severity="error",
            ranks=(1,),
            subject="w",
            expected="all ranks to hold the same gradients",
            found="w to be of different kinds: ranks 0 and 2: float32[2, 3]; rank 1: no gradient (None)",
            advice=(
                "Let every rank build the same model, and use the same parameters in every forward: a branch that "
                "depends on the rank or its data leaves parameters without a gradient."
            ),
        ),
    )


@pytest.mark.parametrize(
    ("other", "kind"),
    [
        (tensor(shape=(3, 2)), "float32[3, 2]"),
        (tensor(shape=()), "float32[]"),
        (tensor(dtype="float16"), "float16[2, 3]"),
        (ABSENT, "no gradient (None)"),
    ],
)
def test_other_shapes_and_types_are_told_apart(other, kind):
    """Tensors of another shape or type are not compared, whatever their digests, but told."""
    (finding,) = ask("parameter-sync", [model(w=tensor()), model(w=other)])
    assert finding.found == f"w to be of different kinds: rank 0: float32[2, 3]; rank 1: {kind}"


def test_a_tensor_that_some_ranks_lack():
    """A parameter that a rank does not have at all is named, whichever rank that is."""
    small, large = model(w=tensor()), model(w=tensor(), extra=tensor())
    for models in ([large, small, small], [small, large, small]):
        (finding,) = ask("parameter-sync", models)
        assert finding.subject == "extra"
        assert "no such tensor" in finding.found
    assert finding.ranks == (1,)


# --- differences


def test_a_difference_is_described_by_its_worst_element():
    """The finding names the parameter, the ranks, the worst element with both values, and the fix."""
    models = [model(w=tensor("a"), b=tensor("a")), model(w=tensor("b"), b=tensor("b"))]
    compared = {
        "w": worst(size=0.25, place=(0, 1), elements=1),
        "b": WorstDifference(size=1234.5678, place=(7,), mine="-1", reference="1e+06", elements=1200, of=4000),
    }
    assert differ("parameter-sync", models, {}, compared) == Finding(
        check="parameter-sync",
        rule="parameter-sync/different-parameters",
        severity="error",
        ranks=(1,),
        subject="b",
        expected="all ranks to hold the same parameters",
        found=(
            "2 of 2 parameters to differ from rank 0's on rank 1; most of all b on rank 1: 1,200 of 4,000 elements, "
            "by up to 1.23e+03 at [7] (rank 1 has -1, rank 0 has 1e+06); also w"
        ),
        advice="Find what changes parameters on one rank alone: to reduce gradients never repairs parameters.",
        count=2,
    )


def test_the_ranks_are_those_that_differ_from_the_majority():
    """With three ranks and more, the one that left the majority is the one named."""
    models = [model(w=tensor(d)) for d in "abb"]
    finding = differ("parameter-sync", models, {"w": worst()}, {}, {"w": worst(size=0.0, elements=0)})
    assert finding.ranks == (0,)
    assert "to differ from rank 1's on rank 0; most of all w on rank 0" in finding.found


def test_the_worst_of_all_ranks_is_shown():
    """Of several ranks that differ, the element that is farthest away is shown."""
    models = [model(w=tensor(d)) for d in "abc"]
    finding = differ("parameter-sync", models, {}, {"w": worst(size=1.0)}, {"w": worst(size=math.inf)})
    assert finding.ranks == (1, 2)
    assert "on ranks 1 and 2; most of all w on rank 2" in finding.found
    assert "by up to inf at [1, 2]" in finding.found


def test_a_single_number_has_no_place():
    """Of a tensor without dimensions, no place is given."""
    models = [model(w=tensor("a", shape=())), model(w=tensor("b", shape=()))]
    found = differ("parameter-sync", models, {}, {"w": worst(place=(), elements=1, of=1)}).found
    assert "1 of 1 element, by up to 0.5 (rank 1 has" in found


def test_a_parameter_that_only_has_other_bits_is_not_counted():
    """Of the differing digests, only tensors with differing elements are told."""
    models = [model(w=tensor("a"), z=tensor("a")), model(w=tensor("b"), z=tensor("b"))]
    finding = differ("parameter-sync", models, {}, {"w": worst(), "z": worst(size=0.0, elements=0)})
    assert finding.count == 1
    assert "also" not in finding.found


@pytest.mark.parametrize(("atol", "rtol"), [(1e-3, 0.5), (1e-3, 0.0), (0.0, 0.5)])
def test_the_tolerance_is_told(atol, rtol):
    """A finding under a tolerance, absolute or relative, says what was allowed."""
    models = [model(w=tensor(d), atol=atol, rtol=rtol) for d in "ab"]
    finding = differ("gradient-sync", models, {}, {"w": worst()})
    assert finding.expected == f"all ranks to hold the same gradients (allowed: atol {atol:g}, rtol {rtol:g})"


def test_many_tensors_are_listed_in_part():
    """Beside the worst tensor four more are named, and the number of the others."""
    compared = {f"w{n}": worst(size=float(n)) for n in range(7)}
    found = differ("parameter-sync", [many("a", 7), many("b", 7)], {}, compared).found
    assert found.startswith("7 of 7 parameters to differ from rank 0's on rank 1; most of all w6 on rank 1")
    assert found.endswith("; also w0, w1, w2, w3 and 2 more")


def test_the_mend_for_gradients_is_the_way_to_the_loss():
    """Gradients are fixed by the forward through the wrapper, and by treating them alike."""
    assert differ("gradient-sync", [model(w=tensor(d)) for d in "ab"], {}, {"w": worst()}).advice == (
        "Compute the loss from the output of the wrapper itself, leave no_sync() before the last forward of a step, "
        "and treat gradients alike on every rank between backward() and step()."
    )


def test_a_broadcast_speaks_of_tensors_and_rank_zero():
    """The initial state consists of parameters and buffers, and rank 0's is the right one."""
    name = "bn.running_mean (buffer)"
    models = [model(more={name: tensor(d)}) for d in "abb"]
    finding = differ("initial-broadcast", models, {}, {name: worst()}, {name: worst()})
    assert finding.expected == "all ranks to hold rank 0's parameters and buffers"
    assert finding.found.startswith(
        "1 of 1 tensor to differ from rank 0's on ranks 1 and 2; most of all bn.running_mean"
    )
    assert finding.ranks == (1, 2)
    assert finding.advice == "Load and initialise before the model is wrapped, or do the same on every rank."


# --- causes


def cause(check, *models, **more):
    return differ(check, models, {}, *[{"w": worst(**more)}] * (len(models) - 1)).cause


@pytest.mark.parametrize("check", CHECKS)
def test_a_model_outside_of_ddp_is_the_cause(check):
    """Without the wrapper on any rank, nothing could have made the ranks agree."""
    models = [model(w=tensor(d), wrapped=False) for d in "ab"]
    assert cause(check, *models) == "the model is not in DistributedDataParallel, so nothing made the ranks agree"


@pytest.mark.parametrize("check", CHECKS)
def test_a_model_wrapped_on_some_ranks_is_the_cause(check):
    """A wrapper on some ranks only is named with these ranks."""
    models = [model(w=tensor("a")), model(w=tensor("b"), wrapped=False)]
    assert cause(check, *models) == "only rank 0 has the model in DistributedDataParallel"


@pytest.mark.parametrize("check", CHECKS)
def test_what_the_tensors_do_not_show_is_no_cause(check):
    """Of a model that is wrapped on all ranks, what they have kept on record has to explain it."""
    assert cause(check, *[model(w=tensor(d)) for d in "ab"]) == ""


def test_a_factor_between_ranks_is_named():
    """One whole factor between the gradients of two ranks points to a scaling."""
    models = [model(w=tensor(d)) for d in "ab"]
    for scale, times in ((2.0, 2), (3.0001, 3), (7.9999, 8)):
        found = differ("gradient-sync", models, {}, {"w": worst(scale=scale)}).found
        assert found.endswith(f": {times} times the other's")
    for scale in (None, 1.0, 2.5, 0.0, -2.0, 2.01):
        assert "times" not in differ("gradient-sync", models, {}, {"w": worst(scale=scale)}).found


# --- what is declared to lie on a mesh


def part(digest="same", holders=(), placements=("R", "S0"), **more):
    return tensor(digest, holders=tuple(holders), placements=placements, **more)


ALONG = ((0, 2), (1, 3))
"""The ranks of a mesh of two by two that hold copies along its first dimension."""


def hybrid(digests, **more):
    """Four ranks of a mesh, with a parameter each that is sharded along the second dimension."""
    return [model(w=part(digest, ALONG[rank % 2]), wrapped=False, **more) for rank, digest in enumerate(digests)]


@pytest.mark.parametrize("check", CHECKS)
def test_holders_are_compared_with_each_other(check):
    """Ranks that hold other elements differ by right."""
    assert ask(check, hybrid("abab")) == ()
    question = ask(check, hybrid("abac"))
    assert question.about["copies"] == [["w", 1, [1, 3]]]
    assert ask(check, hybrid("abba")).about["copies"] == [["w", 0, [0, 2]], ["w", 1, [1, 3]]]


def test_a_difference_between_holders():
    """It is said from whom it differs, and what is to be done about copies."""
    models = hybrid("abcd")
    compared = ({}, {}, {"w": worst(size=0.5)}, {"w": worst(size=0.25)})
    (finding,) = ask("initial-broadcast", models, [None] * 4, compared)
    assert finding.ranks == (2, 3)
    assert finding.expected == "the ranks that hold copies to hold the same parameters and buffers"
    assert finding.found.startswith(
        "1 of 1 tensor that several ranks hold to differ from those of ranks 0 and 1 on ranks 2 and 3; "
        "most of all w on rank 2: 3 of 6 elements, by up to 0.5 at [1, 2] (rank 2 has 1.5, rank 0 has 1)"
    )
    assert finding.cause == ""
    assert "before they are sharded" in finding.advice
    (one,) = ask("gradient-sync", hybrid("abac"), [None] * 4, [{}, {}, {}, {"w": worst()}])
    assert "to differ from rank 1's on rank 3; most of all w on rank 3" in one.found


def test_the_majority_of_holders():
    """Among three holders the one that differs from both others is named."""
    models = [model(w=part(d, (0, 1, 2), ("R",))) for d in "abb"]
    assert ask("parameter-sync", models).about["copies"] == [["w", 1, [0, 1, 2]]]


@pytest.mark.parametrize("check", CHECKS)
def test_nothing_that_ranks_hold_alike_is_not_held(check):
    """Where every rank has a part of its own, nothing was checked, and it says so."""
    (finding,) = ask(check, [model(w=part(d, (rank,), ("S0",))) for rank, d in enumerate("ab")])
    assert finding.severity == "error"
    assert "that is declared to be the same on two ranks or more: nothing was checked" in finding.found
    assert ask(check, [model(w=part("a", (0,), ("S0",)))]) == ()


def test_tensors_of_which_nobody_says_who_holds_them_are_left_out():
    """Beside copies, a plain tensor is no copy because it is there."""
    models = [model(w=part("same", (0, 1), ("R",)), norm=tensor(d, holders=())) for d in "ab"]
    assert ask("parameter-sync", models) == ()


def test_a_gradient_that_some_holders_lack():
    """A parameter that has a gradient on some of its holders only is named, with the ranks among them."""
    models = hybrid("abab")
    models[2] = model(w=TensorFacts(present=False, holders=(0, 2), placements=("R", "S0")))
    (finding,) = ask("gradient-sync", models)
    assert finding.found == "w to be of different kinds: rank 0: float32[2, 3] (R, S0); rank 2: no gradient (None)"


def test_other_placements_are_other_kinds():
    """What one rank has as a copy, and another one as a shard, is not compared, but told."""
    models = [model(w=part("a", (0, 1), ("R",))), model(w=part("a", (1,), ("S0",)))]
    (finding,) = ask("parameter-sync", models)
    assert "rank 0: float32[2, 3] (R); rank 1: float32[2, 3] (S0)" in finding.found


def test_parts_of_a_model_on_some_ranks_alone():
    """A stage's tensors are on its own ranks; the others lack nothing."""
    first = [model(a=part("1", (0, 1), ("R",)))] * 2
    second = [model(b=part("2", (2, 3), ("R",)))] * 2
    assert ask("parameter-sync", [*first, *second]) == ()
