"""What all ranks save, side by side: parts of tensors, names, and optimizers that share their work."""

from __future__ import annotations

import pytest

from ddpcheck import evidence as ev
from ddpcheck.checks.checkpoint_save_complete.run import judge
from ddpcheck.judging.world import World
from tests.judging.own_reductions import averaged
from tests.judging.written import ended, raised, step, world, wrapped
from tests.judging.written import rank as written_rank
from tests.judging.written_state import Forms, Value, moment, part, plain, weight

BOTH = {"how": "dcp.save", "ranks": (0, 1)}


def saved(*values, line=10, path="/job/x.pt", **more):
    return [*Forms().saved(line, path, *values, **more), step(20), ended()]


def of(*ranks):
    return judge(world(*ranks))


FIRST, SECOND = part("w", 0, 4, 1, 2), part("w", 2, 4, 3, 4)


def test_all_parts_are_saved():
    """Each rank has a file of its own, and together they have the whole."""
    judged = of(saved(FIRST, path="/job/0.pt"), saved(SECOND, path="/job/1.pt"))
    assert (judged.checked, judged.findings) == (1, ())


def test_one_rank_saves_its_part_alone():
    """The other rank trains on, and saves nothing."""
    (found,) = of(saved(FIRST), [step(20), ended()]).findings
    assert (found.severity, found.ranks, found.subject, found.where.line) == ("error", (0,), "w", 10)
    assert "2 of the 4 elements" in found.found


@pytest.mark.parametrize(
    "other",
    [
        None,  # it may still be about to save its part
        [*Forms().saved(10, "/job/1.pt", SECOND, number=3), step(20), ended()],  # it saves at other times
        [step(20), raised("out of disk", 10), ended()],
    ],
)
def test_parts_that_may_be_saved(other):
    ranks = [written_rank(0, saved(FIRST)), written_rank(1, other or [], exit_code=0 if other else None)]
    assert judge(World(ranks, 2)).findings == ()


def test_a_replicas_copy_is_not_needed():
    """Rank 1 holds what rank 0 saves."""
    assert of(saved(part("w", 0, 2, 1, 2)), [step(20), ended()]).findings == ()


# --- names


def test_a_plain_tensor_that_differs_is_lost():
    """Stages that name their layers from zero."""
    ranks = [saved(weight("model.0.weight", *values), **BOTH) for values in ((1, 2), (3, 4))]
    (found,) = of(*ranks).findings
    assert (found.severity, found.ranks, found.subject) == ("error", (0, 1), "model.0.weight")
    assert "stages" in found.cause


def test_copies_that_are_stepped_apart():
    """Local SGD: the momentum of one rank may be meant to serve all."""
    ranks = [[*averaged(), *saved(moment("a", 1, rank), **BOTH)] for rank in (1, 2)]
    (found,) = of(*ranks).findings
    assert found.severity == "warning"
    assert "a copy of its own" in found.cause
    (found,) = of(*[one[2:] for one in ranks]).findings
    assert found.severity == "error"


def test_equal_names_with_equal_values():
    """Replicas: one of them is written."""
    judged = of(*[saved(weight("model.0.weight", 1, 2), plain("step", 7), **BOTH)] * 2)
    assert (judged.checked, judged.findings) == (1, ())


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (lambda rank: plain("rng", rank, role="random"), "random generators"),
        (lambda rank: plain("position", rank), "values"),
    ],
)
def test_what_is_each_ranks_own_is_at_risk(value, words):
    """Whether it is needed, nobody knows."""
    (found,) = of(*[saved(value(rank), **BOTH) for rank in (1, 2)]).findings
    assert found.severity == "warning"
    assert words in found.found


def test_buffers():
    """Those of one rank may be meant for all."""
    ranks = [saved(plain("mean", rank, role="buffer"), **BOTH) for rank in (1, 2)]
    assert of(*ranks).findings == ()


def test_the_whole_of_a_wrapped_model():
    """Every rank has all there is; one saves it."""
    judged = of([wrapped(5), *saved(weight("0.weight", 1, 2))], [step(20), ended()])
    assert (judged.checked, judged.findings) == (1, ())


def test_what_was_gathered():
    """Copies of what the training has in parts."""
    judged = of(saved(plain("0.weight", 1, 2, role="parameter", of="0.weight", whole=True)), [step(20), ended()])
    assert (judged.checked, judged.findings) == (1, ())


@pytest.mark.parametrize("more", [{}, {"how": "dcp.save", "ranks": ()}])
def test_names_in_files_of_their_own(more):
    """Each rank's own file may name things as it likes."""
    ranks = [saved(weight("0.weight", rank), path=f"/job/{rank}", **more) for rank in (1, 2)]
    assert of(*ranks).findings == ()


def test_a_dtensor_that_differs_is_no_matter_of_names():
    """Copies that drift apart are a finding of another check."""
    copies = [part("w", 0, 2, *values, of="w") for values in ((1, 2), (3, 4))]
    net = model_of(ev.Held(name="w", kind="float32[2]", layout=copies[0].entry.layout))
    assert of(*[[net, *saved(one, **BOTH)] for one in copies]).findings == ()


# --- optimizers


def optimizer(*paths, line=5):
    parameters = [
        ev.Parameter(name=path, kind="float32[2]", wrapper=None, reduced=False, model=0, path=path) for path in paths
    ]
    return ev.Optimizer, {
        "optimizer": 0,
        "kind": "Adam",
        "site": line,
        "parameters": parameters,
        "sharded": False,
        "values": b"",
    }


def model(*names):
    held = [ev.Held(name=name, kind="float32[2]") for name in names]
    return ev.Model, {"model": 0, "kind": "Net", "site": 4, "held": held}


def sharing(first, second, *more, then=(), line=5):
    """Rank 0 saves its optimizer's state; both have the whole model."""
    both = model("a", "b")
    ours = [both, optimizer(*first), step(6), *saved(*[moment(one, 1, 2) for one in first], *more), *then]
    return of(ours, [both, optimizer(*second, line=line), step(6), step(20), ended()])


def test_an_optimizer_that_shares_its_work():
    """What the others step is in no file."""
    (found,) = sharing(["a"], ["b"]).findings
    assert (found.severity, found.ranks, found.subject) == ("error", (0,), "b")


def dealt_out(saver, other, number=0):
    """Both optimizers are given both parameters, and keep state for those that these letters stand for."""
    both = model("a", "b")

    def stepped(kept):
        state = b"".join(ev.ABSENT if letter == "." else letter.encode() * ev.WIDTH for letter in kept)
        return step(6, state={"momentum_buffer": state} if kept else {})

    ours = [both, optimizer("a", "b"), stepped(saver), *saved(moment("a", 1, 2))]
    return of(ours, [both, optimizer("a", "b"), stepped(other), step(20), ended()])


def test_an_optimizer_that_is_given_all_and_keeps_its_own():
    """Distributed Muon: each rank has momentum for the parameters whose updates fall to it."""
    (found,) = dealt_out("x.", ".y").findings
    assert (found.severity, found.ranks, found.subject) == ("error", (0,), "b")
    assert "rank 1, where the optimizer has that of 1 parameter" in found.found


@pytest.mark.parametrize(("saver", "other"), [
    ("xy", "xy"),
    ("xy", ".y"),  # the saver has it all
    ("x.", "x."),  # nobody has any for the other one
    ("x.", ""),  # not looked at
    ("", ".y"),
])  # fmt: skip
def test_state_that_nobody_lacks(saver, other):
    assert dealt_out(saver, other).findings == ()


def test_an_optimizer_that_all_ranks_have():
    """One rank's state is that of all."""
    judged = sharing(["a", "b"], ["a", "b"])
    assert (judged.checked, judged.findings) == (1, ())


def test_moments_that_were_gathered():
    """Beside its own there are copies, of another's most likely."""
    assert sharing(["a"], ["b"], plain("all.1.b.exp_avg", 5, 6)).findings == ()


def test_moments_that_are_gathered_later():
    """A rank's own state, for whatever purpose, and then that of all."""
    gathered = Forms().saved(12, "/job/all", plain("all.1.b.exp_avg", 5, 6), save=9, form=9)
    assert sharing(["a"], ["b"], then=gathered).findings == ()


def test_optimizers_of_other_lines_share_nothing():
    """A critic of one rank, beside the actor of another."""
    assert sharing(["a"], ["b"], line=7).findings == ()


def test_moments_of_what_every_rank_has():
    """FSDP that shards nothing."""
    layout = ev.Layout(ground="FSDP", shape=(2,), placements=("R",), local=(2,))
    entry = ev.Entry(
        name="0.exp_avg", kind="float32[2]", role="moment", of="a", key="exp_avg", live=True, layout=layout
    )
    judged = of([optimizer("a"), step(6), *saved(Value(entry, (1, 2)))], [optimizer("a"), step(6), step(20), ended()])
    assert judged.findings == ()


def test_moments_of_a_flat_parameter():
    """Each rank has a part of the one parameter that there is."""
    flat = part("optimizer.0.exp_avg", None, 2, 1, 2, role="moment", of="_flat_param", key="exp_avg")
    (found,) = of([step(6), *saved(flat)], [step(6), step(20), ended()]).findings
    assert found.subject == "_flat_param"


def test_nothing_is_saved():
    judged = of([step(20)], [step(20)])
    assert (judged.checked, judged.skipped_because) == (0, "ddpcheck saw no state dict being saved")


# --- states that are too large


def test_what_was_seen_in_part_is_not_checked():
    """What was left out may be what is missing; nothing is said of it, nor of what other ranks have saved."""
    judged = of(saved(FIRST, left_out=1), [step(20), ended()])
    assert (judged.checked, judged.findings) == (0, ())
    assert judged.skipped_because == "a state dict with more than 1 entries was looked at in part"
    assert of(saved(FIRST), saved(SECOND, left_out=1, number=3)).findings == ()
    assert of(saved(moment("a", 1)), saved(moment("b", 2), left_out=1)).findings == ()


def model_of(*held):
    return ev.Model, {"model": 0, "kind": "Net", "site": 4, "held": list(held)}
