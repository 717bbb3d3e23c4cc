"""What the paragraph says of a program whose ranks hold unlike parts, in words that are true of all of them."""

from __future__ import annotations

from ddpcheck import evidence as ev
from ddpcheck.checks.parameter_sync.run import judge
from ddpcheck.facts import parallelism_seen
from tests.facts.meeting import kept, mean, ranks_that_meet
from tests.judging import own_reductions
from tests.judging.own_reductions import carried
from tests.judging.sharded_models import layout, mesh, optimizer, stepped
from tests.judging.written import call, exchanged, transfers, world, wrapped


def test_what_stages_do_not_share_is_counted_for_each_rank():
    """Stages have unequally many parameters, and what one optimizer has may be what another one reduces."""
    ranks = [[optimizer(5, dict.fromkeys("abc"[: rank + 2])), stepped(7, 0, ["g"] * (rank + 2))] for rank in range(2)]
    staged = [[own_part(rank), *own] for rank, own in enumerate(ranks)]
    told = parallelism_seen.paragraph(world(*staged))
    assert "2 to 3 parameters of a rank in no wrapper were not compared" in told


def own_part(rank):
    given = {"how": "PipelineStage", "site": 3, "stage": rank, "stages": 2, "pipeline": (0, 1)}
    return ev.Parallelised, given


def test_an_optimizer_may_have_nothing_of_what_was_sharded():
    """As one that was built before: it is said that there is FSDP2, and that nothing of it was understood."""
    sharded = (ev.Parallelised, {"how": "fully_shard", "site": 3, "ranks": (0, 1)})
    own = [sharded, optimizer(5, {"w": None}), stepped(7, 0, ["g"])]
    seen = world(own, own)
    assert parallelism_seen.understood(seen) == ()
    assert parallelism_seen.paragraph(seen).startswith("FSDP2, and yet no parameter that an optimizer steps was")


def test_what_two_optimizers_step_is_one_parameter():
    """An outer optimizer's gradients are reduced; the inner one has the same parameters."""
    reduced = ev.Carried(place=0, of="gradient", inside=False, group="world", number=0, offset=0, alike=True)
    own = [
        optimizer(5, {"w": None}),
        optimizer(6, {"w": None}, optimizer=1),
        stepped(7, 0, ["i"]),
        exchanged(0, reduced, of=1),
        stepped(8, 0, ["o"], optimizer=1),
        transfers(of_models=1),
    ]
    told = parallelism_seen.paragraph(world(own, own))
    assert "gradients of 1 parameter reduced by the program itself" in told
    assert "not compared" not in told


def spread(*hows, meshes):
    """The paragraph of two ranks that share a parameter out over each of these meshes."""
    done = [(ev.Parallelised, {"how": how, "site": 3, "ranks": (0, 1)}) for how in hows]
    ranks = []
    for rank in range(2):
        layouts = {f"w{n}": layout(rank, (2,), ["S0"], mesh=n) for n in range(len(meshes))}
        its = [mesh((2,), (name,), number=n) for n, name in enumerate(meshes)]
        ranks.append([*done, *its, optimizer(5, layouts), stepped(7, 0, ["g"] * len(meshes))])
    return parallelism_seen.paragraph(world(*ranks))


def test_experts_on_a_mesh_of_their_own():
    """torch has one function for both: the dimension's name says which it is."""
    told = spread("parallelize_module", "fully_shard", meshes=["fsdp", "ep"])
    assert "FSDP2 over 2 ranks (fsdp)" in told
    assert "expert parallelism over 2 ranks (ep)" in told
    assert "Not seen: DDP, tensor parallelism, pipeline." in told


def test_each_mesh_by_what_lies_on_it():
    """A dimension that is called for data is not split by tensor parallelism, nor one called for that by FSDP2."""
    told = spread("parallelize_module", "fully_shard", meshes=["dp", "tp"])
    assert told.startswith("FSDP2 over 2 ranks (dp): 1 parameter sharded; tensor parallelism over 2 ranks (tp)")
    nameless = spread("parallelize_module", "fully_shard", meshes=["own"])
    assert nameless.startswith("tensor parallelism and FSDP2 over 2 ranks (own)")


def test_what_makes_plain_tensors_of_parameters_is_named():
    """DDP over a model whose DTensors are plain during the forward: that it was parallelised is known."""
    tp = ev.Parallelised, {"how": "parallelize_module", "site": 3, "ranks": (0, 1)}
    ranks = [[tp, wrapped(4), own_reductions.optimizer(wrapper=0), own_reductions.stepped("gh")] for _ in range(2)]
    told = parallelism_seen.paragraph(world(*ranks))
    assert "tensor parallelism over 2 ranks" in told


def test_who_owns_what():
    """Optimizers that have other parameters on each rank; torch's own that deals out what it was given."""
    ranks = [
        [wrapped(1), own_reductions.optimizer(names=names, wrapper=0), own_reductions.stepped("gh")]
        for names in ("ab", "cd")
    ]
    assert "4 parameters dealt out over 2 ranks" in parallelism_seen.paragraph(world(*ranks))
    (reason,) = {judge(world(*ranks)).skipped_because}
    assert reason == "ddpcheck saw the optimizer of each rank step other parameters"
    zero = [
        wrapped(1),
        own_reductions.optimizer(wrapper=0, kind="ZeroRedundancyOptimizer", sharded=True),
        own_reductions.stepped("gh"),
    ]
    assert "2 parameters stepped by one rank each (ZeroRedundancyOptimizer)" in parallelism_seen.paragraph(
        world(zero, zero)
    )
    hooked = [wrapped(1), own_reductions.optimizer(wrapper=0, apart=True), own_reductions.stepped("gh")]
    assert "leaves each rank its own gradients" in parallelism_seen.paragraph(world(hooked, hooked))


def test_stages_by_hand_are_named_and_not_understood():
    """Tensors that are sent, and are no parameters as far as was seen."""
    sends = [
        call(0, 5, op="send", peer=1),
        own_reductions.optimizer(),
        own_reductions.stepped("gh"),
        transfers(others=3),
    ]
    other = [
        call(0, 5, op="send", peer=0),
        own_reductions.optimizer(),
        own_reductions.stepped("ij"),
        transfers(others=3),
    ]
    text = parallelism_seen.paragraph(world(sends, other))
    assert text.startswith("nothing: ")
    assert "from rank to rank (0 to 1 and 1 to 0)" in text or "from rank to rank (0 to 1, 1 to 0)" in text
    gossip = [[*one[:-1], transfers(of_models=3)] for one in (sends, other)]
    assert "from rank to rank" not in parallelism_seen.paragraph(world(*gossip))


def test_tensors_made_plain_for_a_wrapper():
    """No optimizer steps a DTensor, and the model is split all the same."""
    split = ev.Parallelised, {"how": "parallelize_module", "site": 3, "ranks": (0, 1)}
    ranks = [[split, wrapped(1), own_reductions.optimizer(wrapper=0), own_reductions.stepped("gh")] for _ in range(2)]
    assert "tensor parallelism over 2 ranks" in parallelism_seen.paragraph(world(*ranks))


def test_parameters_that_meet_now_and_then():
    """Each rank steps its own; an average that no rank takes makes nothing the same."""
    assert "1 parameter that each rank steps for itself, brought together" in parallelism_seen.paragraph(
        ranks_that_meet({"a.w": mean, "b.w": kept})
    )
    made = [carried(0, "parameter", flat=True)]
    unused_average = ranks_that_meet(
        {"a.w": kept}, exchanges=lambda _: [exchanged(n, *(made if n % 2 == 0 else ())) for n in range(9)]
    )
    text = parallelism_seen.paragraph(unused_average)
    assert "made the same" not in text
    assert "1 parameter exchanged by the program itself" in text
