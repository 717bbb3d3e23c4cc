"""What models begin with: unwritten memory, shards of several models, shards and stages that are the same numbers."""

from __future__ import annotations

import pytest

from ddpcheck import evidence as ev
from ddpcheck.checks.initial_values.run import judge
from ddpcheck.judging import zero_digests
from tests.judging.sharded_models import digest, held, layout, mesh, model, optimizer
from tests.judging.written import world, wrapped

TWO = (2,)


def sharded(rank, **more):
    return layout(rank, TWO, ("S0",), **more)


def of(*tensors, **more):
    """The same model on two ranks; each tensor is made for a rank."""
    return world(*[[mesh(TWO, ("dp",)), model(9, *[make(rank) for make in tensors], **more)] for rank in range(2)])


def test_a_model_whose_shards_differ_is_right():
    """Cut from the same tensors, written, and different numbers."""
    judged = judge(of(lambda r: held("w", f"w{r}", sharded(r), cut_from=digest("w"), cut_by=(0, 1))))
    assert (judged.checked, judged.findings) == (2, ())


def test_no_model_no_check():
    """What was not seen is not held."""
    judged = judge(world([], []))
    assert (judged.checked, judged.skipped_because) == (0, "ddpcheck saw no module called with gradients")


# --- what was compared


def copied(compared):
    """A plain model on two ranks, of which a wrapper made some tensors the same."""
    tensors = ev.Tensors(names=list(compared), digests=b"".join(map(digest, compared)))
    ranks = [model(9, held("w"), held("b"), held("scale", filled=True)), optimizer(4, {"w": None, "b": None})]
    return world(*[[wrapped(3, module=0, parameters=tensors), *ranks]] * 2)


@pytest.mark.parametrize(("compared", "models"), [("wb", 2), ("w", 0)])
def test_a_model_counts_of_which_all_that_was_drawn_was_compared(compared, models):
    """A tensor that nobody says anything of may be a copy, or a part, that began otherwise on another rank."""
    judged = judge(copied(compared))
    assert (judged.checked, judged.findings) == (models, ())
    assert "could compare all that was drawn" in judged.skipped_because


def test_ranks_with_which_nothing_was_compared_may_hold_anything():
    """Two wrappers over two ranks each: what goes for one of the groups says nothing of the other."""
    tensors = ev.Tensors(names=["w"], digests=digest("w"))
    groups = ["0,1#1", "0,1#1", "2,3#1", "2,3#1"]
    ranks = [[wrapped(3, module=0, parameters=tensors, group=group), model(9, held("w"))] for group in groups]
    assert judge(world(*ranks)).checked == 0
    assert judge(world(*ranks[:2])).checked == 2


def test_what_a_shard_was_cut_from_has_to_be_known():
    """On a device it is not read; whether the rows of a mesh began alike is not known then."""
    judged = judge(of(lambda r: held("w", f"w{r}", sharded(r), cut_from=ev.UNSEEN, cut_by=(0, 1))))
    assert (judged.checked, judged.findings) == (0, ())


def test_zeros_and_models_of_nothing_cover_nothing():
    zeros = zero_digests.of_zeros(64 * 4)
    for one in zeros:
        tensors = ev.Tensors(names=["w"], digests=one)
        ranks = [wrapped(3, module=0, parameters=tensors), model(9, held("w", digest=one, filled=True))]
        assert judge(world(ranks, ranks)).checked == 0


# --- unwritten memory


def test_memory_that_nobody_has_written_to():
    """Named once for all ranks, at the first forward."""
    (found,) = judge(of(lambda r: held("rope", buffer=True, written=False, persistent=False))).findings
    assert (found.severity, found.ranks, found.subject) == ("error", (0, 1), "rope")
    assert "load_state_dict() restores none of them" in found.found
    assert found.where is not None
    assert found.where.line == 9


def test_zeros_may_have_been_meant():
    """Fresh memory is zeros, and so is what ``.data.zero_()`` has written, which nobody sees."""
    (found,) = judge(of(lambda r: held("rope", buffer=True, written=False, filled=True))).findings
    assert found.severity == "warning"


def test_memory_that_could_not_be_read():
    """Nobody knows whether it was written to: not checked, and the reason."""
    judged = judge(of(lambda r: held("w", written=True), unread=1))
    assert (judged.checked, judged.findings) == (0, ())
    assert "could not read memory" in judged.skipped_because


# --- what shards were cut from


def test_shards_of_several_models():
    """Each rank had weights of its own when the model was sharded."""
    judged = judge(of(lambda r: held("w", f"w{r}", sharded(r), cut_from=digest(f"whole{r}"), cut_by=(0, 1))))
    (found,) = judged.findings
    assert (found.severity, found.ranks, found.subject) == ("error", (1,), "w")


@pytest.mark.parametrize("local", [(0, 4), (2, 4)], ids=["empty", "not empty"])
def test_a_part_without_elements_was_cut_from_every_model(local):
    """The second rank has no row of a layer with fewer rows than ranks: nothing of it can come from another model."""
    parts = {0: sharded(0, local=(2, 4)), 1: sharded(1, local=local)}
    judged = judge(of(lambda r: held("w", f"w{r}", parts[r], cut_from=digest(f"whole{r}"), cut_by=(0, 1))))
    assert len(judged.findings) == (0 if 0 in local else 1)


def test_what_was_written_to_since_was_cut_from_nothing():
    """A load after sharding makes all whole again: the probe says so by leaving the digest out."""
    assert judge(of(lambda r: held("w", f"w{r}", sharded(r)))).findings == ()


def test_each_group_of_a_mesh_cuts_tensors_of_its_own():
    """Data-parallel groups of two tensor-parallel ranks: what is cut in the one is another part than in the other."""
    ranks = [
        [
            mesh((2, 2), ("dp", "tp")),
            model(
                9,
                held(
                    "w",
                    f"w{rank}",
                    layout(rank, (2, 2), ("S0", "S0")),
                    cut_from=digest(f"part{rank % 2}"),
                    cut_by=(rank % 2, rank % 2 + 2),
                ),
            ),
        ]
        for rank in range(4)
    ]
    assert judge(world(*ranks)).findings == ()


# --- equal shards


def test_shards_that_are_one_block_repeated():
    """All sharded weights are equal in both shards: they were drawn by generators in the same state."""
    judged = judge(of(lambda r: held("up", "u", sharded(r)), lambda r: held("down", "d", sharded(r))))
    (found,) = judged.findings
    assert (found.severity, found.ranks) == ("error", (0, 1))
    assert "2 of 2 sharded parameters" in found.found


def test_on_the_cpu_torch_draws_all_shards_alike():
    """What its random functions do there for DTensors is no mistake of the program's."""
    drawn = (held("up", "u", sharded(r)) for r in range(2)), (held("down", "d", sharded(r)) for r in range(2))
    kind, fields = mesh(TWO, ("dp",))
    ranks = [[(kind, {**fields, "device": "cpu"}), model(9, *tensors)] for tensors in zip(*drawn, strict=True)]
    (found,) = judge(world(*ranks)).findings
    assert found.severity == "warning"
    assert "on a CPU mesh" in found.cause


def test_some_equal_shards_may_be_copies_on_purpose():
    """Experts begin as copies of one layer, say: a warning."""
    judged = judge(of(lambda r: held("experts", "e", sharded(r)), lambda r: held("w", f"w{r}", sharded(r))))
    assert [one.severity for one in judged.findings] == ["warning"]


@pytest.mark.parametrize("more", [{"filled": True}, {"layout": lambda r: sharded(r, local=(4,))}])
def test_constants_and_small_shards_are_no_draws(more):
    """Norm weights of one are equal rightly."""

    def make(name, rank):
        where = more["layout"](rank) if "layout" in more else sharded(rank)
        return held(name, "c", where, filled=bool(more.get("filled")))

    assert judge(of(lambda r: make("norm", r), lambda r: make("bias", r))).findings == ()


def test_replicas_are_equal_rightly():
    """Copies are no shards."""
    assert judge(of(lambda r: held("norm", "n", layout(r, TWO, ("R",))))).findings == ()


# --- stages


def staged(*digests):
    """A pipeline of stages with two weights each."""
    return world(
        *[
            [
                (
                    ev.Parallelised,
                    {"how": "PipelineStage", "site": 3, "stage": rank, "stages": len(digests)},
                ),
                model(9, held("up", f"u{one}"), held("down", f"d{one}"), held("bias", "b", filled=True)),
            ]
            for rank, one in enumerate(digests)
        ]
    )


def test_stages_that_are_copies_of_each_other():
    """All weights of the same shape are the same numbers."""
    (found,) = judge(staged("a", "a")).findings
    assert (found.severity, found.ranks) == ("warning", (0, 1))


def test_stages_with_weights_of_their_own():
    """Constants do not count."""
    judged = judge(staged("a", "b"))
    assert (judged.checked, judged.findings) == (2, ())
