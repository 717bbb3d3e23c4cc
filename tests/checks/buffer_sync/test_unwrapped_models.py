"""Buffers of models in no wrapper: sharded ones, those that the program reduces itself, and declared copies."""

from __future__ import annotations

import pytest

from ddpcheck import evidence as ev
from ddpcheck.checks.buffer_sync.run import judge
from tests.judging.own_reductions import carried
from tests.judging.sharded_models import digest, held, layout, mesh, model, optimizer, stepped
from tests.judging.written import ended, exchanged, world

FSDP = (ev.Parallelised, {"how": "fully_shard", "site": 3, "ranks": (0, 1)})
TENSOR = (ev.Parallelised, {"how": "parallelize_module", "site": 3, "ranks": (0, 1)})


def buffer(name, value="", where=None, **more):
    if where is None:
        where = ev.Layout(ground="beside", shape=(64,), mesh=0, local=(64,))
    return held(name, value, where, buffer=True, owner=more.pop("owner", "Codes"), **more)


def after(number, *values, of=0, **more):
    """The buffers after a step at line 20."""
    digests = b"".join(map(digest, values))
    return ev.BuffersHeld, {"model": of, "optimizer": 0, "number": number, "site": 20, "digests": digests, **more}


def evaluated(*values, names=("codes",), number=2):
    """The model on all ranks, at line 30."""
    buffers = ev.Tensors(names=list(names), digests=b"".join(map(digest, values)))
    fields = {"kind": "Net", "number": number, "parameters": ev.Tensors(), "site": 30, "module": 0, "stepped": True}
    return ev.Evaluated, {**fields, "buffers": buffers}


def sharded(rank, *records, names=("dp",), declared=FSDP, placements=("S0",), tensors=None, ranks=2):
    """A rank of a model that is sharded over all of them, or split, with one buffer."""
    weight = held("w", "w", layout(rank, (ranks,), placements))
    own = tensors or [buffer("codes")]
    return [mesh((ranks,), names), declared, model(9, weight, *own), *records, ended()]


def test_buffers_that_stay_alike():
    judged = judge(world(*[sharded(rank, after(0, "c"), after(1, "d"), evaluated("d")) for rank in range(2)]))
    assert (judged.checked, judged.findings) == (3, ())


def test_buffers_that_part():
    """Nothing brings them together; whether they are to agree nobody says."""
    (found,) = judge(world(sharded(0, after(0, "c"), after(1, "d")), sharded(1, after(0, "c"), after(1, "e")))).findings
    assert (found.severity, found.subject, found.ranks, found.where.line) == ("warning", "codes", (1,), 20)
    assert found.found == "1 buffer to differ: codes, which were equal at the first forward"


@pytest.mark.parametrize(
    "more",
    [
        {"value": "own"},  # each rank's own from the beginning
        {"persistent": False},  # no part of the state
        {"owner": "BatchNorm1d"},  # statistics between two forwards
    ],
)
def test_buffers_that_may_part(more):
    ranks = []
    for rank in range(2):
        given = {**more, "value": f"own{rank}"} if "value" in more else more
        tensors = [buffer("codes", **given)]
        ranks.append(sharded(rank, after(0, f"c{rank}"), tensors=tensors))
    assert judge(world(*ranks)).findings == ()


def test_statistics_of_a_model_that_all_ranks_evaluate():
    """As under DDP with broadcast_buffers=False."""
    tensors = [buffer("bn.running_mean", owner="BatchNorm1d", filled=True)]
    names = ("bn.running_mean",)
    each = [sharded(r, after(0, f"c{r}"), evaluated(f"c{r}", names=names), tensors=tensors) for r in range(2)]
    (found,) = judge(world(*each)).findings
    assert (found.severity, found.where.line) == ("error", 30)
    assert "when the model is evaluated on all of them" in found.expected
    alone = [each[0], sharded(1, after(0, "c1"), tensors=tensors)]
    assert judge(world(*alone)).findings == ()


def test_a_model_that_the_program_reduces():
    """All of its gradients: a copy on each rank. Local averaging lets them part in between."""

    def rank(value, of="gradient"):
        records = [model(9, held("w"), held("codes", buffer=True)), optimizer(5, {"w": None})]
        if of == "gradient":
            records += [exchanged(0, carried(0)), stepped(20, 0, "g")]
        else:
            records += [exchanged(0), stepped(20, 0, "g"), exchanged(1, carried(0, of=of)), stepped(20, 1, "g")]
        return [*records, after(0, value), ended()]

    (found,) = judge(world(rank("c"), rank("d"))).findings
    assert found.severity == "warning"
    assert judge(world(rank("c", "parameter"), rank("d", "parameter"))).findings == ()


def test_nobody_says_what_the_ranks_hold():
    records = [[model(9, held("w"), held("codes", buffer=True)), after(0, value), ended()] for value in "cd"]
    judged = judge(world(*records))
    assert (judged.checked, judged.findings) == (0, ())
    assert "saw no buffer that several ranks hold" in judged.skipped_because


def test_peers_read_the_same():
    """What is filled with one number at first may become a part's own scale."""
    more = {"names": ("tp",), "declared": TENSOR}
    (found,) = judge(world(sharded(0, after(0, "c"), **more), sharded(1, after(0, "d"), **more))).findings
    assert (found.severity, found.ranks) == ("warning", (1,))
    filled = {**more, "tensors": [buffer("codes", filled=True)]}
    judged = judge(world(sharded(0, after(0, "c"), **filled), sharded(1, after(0, "d"), **filled)))
    assert (judged.checked, judged.findings) == (0, ())


def test_parts_of_different_replicas():
    """Each pair along dp is compared, and none of the others: along tp a buffer may be a part."""
    axes = mesh((2, 2), ("dp", "tp"))
    declared = [(ev.Parallelised, {"how": "fully_shard", "site": 3, "ranks": pair}) for pair in ((0, 2), (1, 3))]

    def rank(number, value):
        weight = held("w", "w", layout(number, (2, 2), ("S0", "S0")))
        own = buffer("codes", f"part{number % 2}")
        return [axes, declared[number % 2], model(9, weight, own), after(0, value), ended()]

    assert judge(world(*map(rank, range(4), "cdcd"))).findings == ()
    (found,) = judge(world(*map(rank, range(4), "cdce"))).findings
    assert found.ranks == (3,)


def test_declared_copies():
    """Placements say that they are the same: an error."""

    def rank(number, value):
        own = buffer("table", "t", layout(number, (2,), ("R",)))
        return sharded(number, after(0, value), names=("tp",), declared=TENSOR, tensors=[own])

    assert judge(world(rank(0, "c"), rank(1, "c"))).checked == 1
    (found,) = judge(world(rank(0, "c"), rank(1, "d"))).findings
    assert (found.severity, found.expected) == (
        "error",
        "the ranks that hold copies of a buffer, by its placements, to hold the same buffers after a step",
    )


def with_experts(
    rank, *values, mesh_of=(), expert="", kind="float32[4]", path="router.weight", name="bias", owner="MoE"
):
    """A router that the program reduces, an expert for each rank, and a buffer of the whole."""
    router, own = f"net.{path}", "net.expert"
    record, given = optimizer(5, {router: None, own: None}, ["r", expert or f"e{rank}"])
    given["parameters"] = [
        ev.Parameter(name=one, kind=kind, wrapper=None, reduced=False, model=0, path=one)
        for one, kind in ((router, "float32[4, 8]"), (own, "float32[8, 8]"))
    ]
    own_buffer = held(f"net.{name}", "zeros", kind=kind, buffer=True, owner=owner, filled=True)
    records = [*mesh_of, model(9, held(router, "r"), held(own, expert or f"e{rank}"), own_buffer), (record, given)]
    steps = [stepped(20, n, ["g", f"g{rank}"], ["w", f"w{rank}{n}"]) for n in range(len(values))]
    return [*records, exchanged(0, carried(0)), *steps, *(after(n, one) for n, one in enumerate(values)), ended()]


def test_a_bias_for_each_expert_of_all_ranks():
    """Of a router whose gradients are made the same, from what each rank has counted."""
    (found,) = judge(world(*[with_experts(rank, "c", f"d{rank}") for rank in range(2)])).findings
    assert (found.severity, found.subject, found.ranks, found.where.line) == ("warning", "net.bias", (1,), 20)
    assert "tokens of each rank alone" in found.cause
    judged = judge(world(*[with_experts(rank, "c", "d") for rank in range(2)]))
    assert (judged.checked, judged.findings) == (2, ())


@pytest.mark.parametrize("given", [
    {"kind": "float32[2]"},  # of its own experts
    {"kind": "float32[]"},
    {"expert": "e"},  # the rest is a copy as well, which the program leaves out: nobody says what it is
    {"path": "other.router.weight", "name": "inner.bias"},  # of another module
    {"owner": "BatchNorm1d"},
    {"mesh_of": [mesh((2,), ("tp",))]},  # parts of layers, norms that are added up
])  # fmt: skip
def test_buffers_beside_experts_that_may_part(given):
    assert judge(world(*[with_experts(rank, "c", f"d{rank}", **given) for rank in range(2)])).findings == ()
