"""Ranks must agree on what a wrapper reduces, or the program itself at every step: equal values are no ground."""

from __future__ import annotations

import msgspec
import pytest

from ddpcheck import evidence as ev
from ddpcheck.facts import parallelism_seen
from ddpcheck.judging import step_alignment
from ddpcheck.judging.replicated_parameters import grounds
from tests.judging import sharded_models
from tests.judging.judged import OF_STEPS, run_findings, run_judged
from tests.judging.own_reductions import BOTH, carried, digests, optimizer, stepped
from tests.judging.written import exchanged, file, load, loaded, rename, save, transfers, world, wrapped


def found(*ranks):
    """Each finding's check, ranks and severity."""
    return [(f.check, f.ranks, f.severity) for f in run_findings(world(*ranks), *OF_STEPS)]


def checks(*ranks):
    return [check for check, _, _ in found(*ranks)]


def test_equal_values_are_no_ground():
    """Two stages of a pipeline that begin alike, and go their own ways at their own rates."""
    ranks = [
        [optimizer(), stepped(g, g, state={"momentum": g}, rates=[0.1 * (r + 1)]), transfers(others=9)]
        for r, g in enumerate(("gh", "ij"))
    ]
    assert found(*ranks) == []
    for judged in run_judged(world(*ranks), "gradient-sync", "parameter-sync", "optimizer-sync"):
        assert judged.checked == 0
        assert "no gradient that the program itself reduces" in judged.skipped_because


@pytest.mark.parametrize(("placements", "reason"), [
    (["S0"], "no two ranks hold the same part"),
    (["R"], "no step on which all ranks have gradients"),
], ids=["shards", "copies"])  # fmt: skip
def test_why_nothing_declared_was_compared(placements, reason):
    """Shards are no copies; and gradients of copies may be sums that are still to be added up."""
    ranks = []
    for number in range(2):
        layout = sharded_models.layout(number, [2], placements)
        own = sharded_models.stepped(9, 0, ["x"])
        own = (own[0], {**own[1], "gradients": ev.ABSENT, "parameters": ev.ABSENT})
        ranks.append([sharded_models.mesh([2]), sharded_models.optimizer(4, {"w": layout}), own])
    (judged,) = run_judged(world(*ranks), "gradient-sync")
    if placements == ["S0"]:
        assert judged.checked == 0
    assert reason in judged.skipped_because


def by_hand(gradients, *records, first=BOTH):
    return [optimizer(), exchanged(0, *first), stepped(gradients), *records, transfers(of_models=9)]


@pytest.mark.parametrize(("records", "expected"), [
    # Reduced at the first step, and ever since: it clips on one rank alone.
    ([], ["gradient-sync"]),
    # One rank has left it out: that is its fault.
    (None, ["gradient-sync"]),
    # All of them leave it out from some step on: they mean to.
    ([exchanged(1), stepped("gh", number=1)], []),
    # It changes all the time.
    ([exchanged(1, *BOTH, lost=True)], []),
])  # fmt: skip
def test_what_the_program_reduces_at_every_step_must_agree(records, expected):
    """The ground is what it does on every rank, from the first step."""
    other = by_hand("gi", *(records if records is not None else [exchanged(1, BOTH[0]), stepped("gi", number=1)]))
    ours = by_hand("gh", *(records or []))
    assert checks(ours, other) == expected
    assert checks(ours, ours) == []


@pytest.mark.parametrize("first", [
    [carried(0, number=0), carried(1, number=2)],  # another call: another parameter
    [carried(0, number=0, alike=False), carried(1, number=1, alike=False)],  # reduced to one rank alone
    [carried(0, number=0, group="0#1"), carried(1, number=1, group="0#1")],  # in a group of its own
    [],
])  # fmt: skip
def test_another_call_is_no_ground(first):
    """What the ranks reduce together is one parameter; what each of them holds in the same place may be another one."""
    assert checks(by_hand("gh"), by_hand("gi", first=first)) == []


def test_a_flat_buffer_is_a_ground_where_it_ever_made_gradients_agree():
    """A buffer of as many elements as all gradients is a hint; what proves it is that they were the same once."""
    flat = [carried(0, flat=True), carried(1, flat=True)]
    ranks = [by_hand(g, first=flat) for g in ("gh", "ij")]
    assert checks(*ranks) == []
    ranks = [[*by_hand("gh", first=flat), stepped(g, number=1)] for g in ("kl", "kj")]
    assert checks(*ranks) == ["gradient-sync"]


def test_parameters_that_are_averaged_now_and_then():
    """Local SGD, with a wrapper that is not used to reduce: no claim between two averages."""
    usage = [ev.Usage(wrapper=0, forwards=1, no_sync=1, no_sync_forwards=1, last_armed=False)]

    def rank(letters, *records):
        start = [wrapped(3), optimizer(wrapper=0), stepped(letters, letters, usage=usage)]
        return [*start, *records, stepped(letters, letters, number=1, usage=usage), transfers(of_models=2)]

    average = exchanged(1, carried(0, "parameter"), carried(1, "parameter"))
    assert checks(rank("gh", average), rank("ij", average)) == []
    assert checks(rank("gh"), rank("ij")) == ["gradient-sync", "parameter-sync", "reducer-coverage"]


@pytest.mark.parametrize(("layout", "moved"), [
    (None, [0, 1]),
    (ev.Layout(ground="FSDP", shape=(4,), placements=("F",), local=(4,)), []),
])  # fmt: skip
def test_what_has_the_size_of_all_shards(layout, moved):
    """It may be moments that were gathered for a checkpoint, and no average of parameters."""

    def rank():
        kind, fields = optimizer()
        held = [msgspec.structs.replace(one, layout=layout) for one in fields["parameters"]]
        gathered = exchanged(1, carried(0, "parameter", flat=True), carried(1, "parameter", flat=True))
        return [(kind, {**fields, "parameters": held}), stepped("gh"), gathered, stepped("gh", number=1)]

    over = world(rank(), rank())
    (one,) = step_alignment.optimizers(over)
    assert grounds(over, one).moved == moved


@pytest.mark.parametrize(("between", "others", "armed", "expected"), [
    ("mm", 2, 0, []),  # objects went over, and all have loaded the same
    ("..", 2, 0, []),  # objects went over: it is not known what became of them
    ("mn", 2, 0, []),
    ("mm", 0, 0, None),  # nothing went over that a mean could be made of
    ("..", 2, 1, None),  # the program does reduce, at other times
])  # fmt: skip
def test_a_wrapper_that_is_never_let_reduce(between, others, armed, expected):
    """Always within no_sync(): the program means it, where objects or files may bring the ranks together."""

    def rank(place, letters):
        alone = [ev.Usage(wrapper=0, forwards=1, no_sync=1, no_sync_forwards=1, last_armed=False)]
        usage = [ev.Usage(wrapper=0, forwards=1, armed=1)] if armed else alone
        load = loaded("module", 8, wrapper=0, wrapped=True, digest=between[place].encode())
        mean = [] if between[place] == "." else [load]
        start = [wrapped(3), optimizer(wrapper=0), stepped(letters, letters, usage=alone)]
        return [*start, *mean, stepped(letters, letters, number=1, usage=usage), transfers(others=others)]

    ranks = rank(0, "gh"), rank(1, "ij")
    if expected is None:
        assert ("reducer-coverage", (0, 1), "error") in found(*ranks)
    else:
        assert found(*ranks) == expected
        (judged,) = run_judged(world(*ranks), "reducer-coverage")
        assert not judged.checked  # what the program reduces is not on record, and so not held
        assert "not what brings the ranks together" in judged.skipped_because
        assert "2 parameters that DDP is never let reduce" in parallelism_seen.paragraph(world(*ranks))


def test_the_first_broadcast_is_not_an_average():
    """What is exchanged before the first step says how training begins."""
    broadcast = exchanged(0, carried(0, "parameter"), carried(1, "parameter"))
    ranks = [[wrapped(3), optimizer(wrapper=0), broadcast, stepped(letters, "pp")] for letters in ("gh", "ij")]
    assert checks(*ranks) == ["gradient-sync"]


def test_gradients_that_are_reduced_within_the_step():
    """On entry they are each rank's own; what comes out has to agree."""
    first = [carried(0, inside=True), carried(1, number=1, inside=True)]
    ranks = [[optimizer(), exchanged(0, *first), stepped(g, "pp")] for g in ("gh", "ij")]
    assert checks(*ranks) == []
    ranks = [[optimizer(), exchanged(0, *first), stepped("gh", p)] for p in ("pq", "pr")]
    assert checks(*ranks) == ["parameter-sync"]


def test_an_optimizer_that_exchanges_what_it_makes_of_gradients():
    """As long as the parameters come out the same, an optimizer of the user's own may step on each rank's gradients."""

    def rank(gradients, parameters="pp", **more):
        return [wrapped(3), optimizer(wrapper=0, torchs=False), stepped(gradients, parameters, **more)]

    assert checks(rank("gh", collectives=1), rank("ij", collectives=1)) == []
    assert checks(rank("gh"), rank("ij")) == ["gradient-sync"]
    expected = ["gradient-sync", "parameter-sync"]
    assert checks(rank("gh", collectives=1), rank("ij", "qr", collectives=1)) == expected


# --- state


def sharing(*states, ignored=False, **more):
    """Ranks with one wrapper, and this state after a step."""
    described = optimizer(wrapper=0, **more)
    if ignored:
        other = ev.Parameter(name="b", kind="float32[4]", wrapper=0, reduced=False, ignored=True)
        described[1]["parameters"][1] = other
    return [[wrapped(3), described, stepped("gh", state={"momentum": letters})] for letters in states]


def test_state_of_an_owner_is_partitioned_and_not_different():
    """Held by one rank each, or by those that hold it alike."""
    assert checks(*sharing("m.", ".n")) == []
    assert checks(*sharing("m.", "mn", "mn")) == []
    assert checks(*sharing("mn", "mo")) == ["optimizer-sync"]
    assert checks(*sharing("m.", "mn", "mo")) == ["optimizer-sync"]


def test_state_and_rate_of_what_the_wrapper_ignores():
    """Each rank's own expert has moments and a rate of its own."""
    assert checks(*sharing("mn", "mo", ignored=True)) == []
    ranks = sharing("mn", "mn", ignored=True, groups=[1, 1])
    for place, rank in enumerate(ranks):
        rank[2][1]["rates"] = [0.1, 0.1 * place]
    assert checks(*ranks) == []
    ranks[1][2][1]["rates"] = [0.2, 0.1]
    assert checks(*ranks) == ["optimizer-sync"]


def test_state_of_an_optimizer_of_the_users_own():
    """What it remembers of a rank's own gradients is its affair, as long as the parameters come out the same."""
    assert checks(*sharing("mn", "mo", torchs=False)) == []
    ranks = sharing("mn", "mo", torchs=False)
    ranks[1][2][1]["parameters"] = digests("pq")
    assert checks(*ranks) == ["parameter-sync", "optimizer-sync"]


# --- which parameters


def outside(letters, others=0):
    """A step of one optimizer over a wrapper's parameter, which agrees, and another one, which does not."""
    described = optimizer(wrapper=0)
    described[1]["parameters"][1] = ev.Parameter(name="b", kind="float32[4]", wrapper=None, reduced=False)
    return [wrapped(3), described, stepped(letters), transfers(others=others)]


LOADER = {
    "loader": 0, "site": 6, "dataset": "TensorDataset", "size": 8, "stream": False, "sampler": "DistributedSampler",
    "distributed": True, "replicas": 2, "shuffle": True, "seed": 0, "sampler_drops": False, "batch_size": 4,
    "drop_last": False, "workers": 0, "dataset_id": 1,
}  # fmt: skip
PASS = {"loader": 0, "number": 0, "site": 7, "epoch": 0, "base_seed": None, "grad": True}
OVER = {"loader": 0, "number": 0, "batches": 1, "samples": 4, "exhausted": True, "order": "", "backwards": 1}


def shard(rank, letters, *records, others=0, replicas=2):
    """A rank that trains on its shard, with no wrapper."""
    loader = (ev.Loader, {**LOADER, "rank": rank, "replicas": replicas})
    trained = [loader, (ev.Pass, PASS), optimizer(), *records, stepped(letters, letters), (ev.PassEnded, OVER)]
    return [*trained, transfers(others=others)]


WRITTEN = ev.MovedBetween, {"optimizer": 0, "number": 0, "moved": [1]}
OUTER, OUTER_STEP = optimizer(1), stepped("xy", "xy", optimizer=1)
SAVED = save("/one.pt", 9)
ARRAY, MOVED = file("write", "open", "/w", 9), rename("/w", "/v", 9)


@pytest.mark.parametrize("ranks", [
    [shard(0, "gh"), shard(1, "gh")],  # they came out the same
    [shard(0, "gh", others=1), shard(1, "ij", others=1)],  # something else went between them
    [shard(0, "gh", replicas=1), shard(1, "ij", replicas=1)],  # each goes through all of its data
    [shard(0, "gh", exchanged(1, *BOTH)), shard(1, "ij", exchanged(1, *BOTH))],
    [shard(0, "gh")[:-1], shard(1, "ij")],
    [shard(0, "gh", save("/part0.pt", 9)), shard(1, "ij", save("/part1.pt", 9))],  # to be averaged, or asked together
    [shard(0, "gh", load("/one.pt", 9)), shard(1, "ij", save("/one.pt", 9))],
    # Written and read in training, whatever its name.
    [shard(0, "gh", stepped("gh"), file("read", "open", "/w", 9)), shard(1, "ij", stepped("gh"), ARRAY)],
    [shard(0, "gh", stepped("gh"), file("read", "open", "/v", 9)), shard(1, "ij", stepped("gh"), ARRAY, MOVED)],
    # Parameters were written to between steps, whatever went between the ranks; or an outer optimizer has met.
    [shard(0, "gh", WRITTEN), shard(1, "ij", WRITTEN)],
    [shard(0, "gh", OUTER, OUTER_STEP), shard(1, "ij", OUTER, OUTER_STEP)],
    # What torch has saved is read without it, and a load_state_dict follows.
    [shard(0, "gh", stepped("gh"), file("read", "open", "/one.pt", 9), loaded("Net", 9)), shard(1, "ij", SAVED)],
])  # fmt: skip
def test_models_of_their_own_that_are_meant(ranks):
    """Whatever brings the ranks together, or shows that they were never meant to be one model."""
    assert "reducer-coverage" not in checks(*ranks)


def test_a_scheduler_that_is_stepped_after_every_micro_batch():
    """Two steps in a row on two ranks are of two micro-batches, where the optimizer has seen two backward() calls."""
    scheduled = (ev.Scheduled, {"kind": "StepLR", "times": 2, "site": 8, "bursts": 4})

    def cause(backwards):
        rank = [wrapped(3), optimizer(wrapper=0), stepped("gh", backwards=backwards), scheduled]
        (finding,) = run_findings(world(rank, rank), "optimizer-sync")
        return finding.cause

    assert cause(2).startswith("it is stepped after every micro-batch")
    assert cause(1) == "every rank steps it once for each of 2 ranks"


LOOP = (
    "class Prepared:\n    def step(self):\n        for _ in range(self.steps):\n            self.scheduler.step()\n\n"
)


@pytest.mark.parametrize(
    ("made", "told"),
    [
        ("p = Prepared(s, steps=dist.get_world_size())\n", ", with steps=dist.get_world_size() (train.py:6)"),
        ("p = Prepared(s, steps=2)\n", ""),
    ],
)
def test_the_loop_that_steps_a_scheduler_for_each_rank(made, told):
    """With the call that gives it the number of ranks, where the text shows that."""
    site = {"id": 200, "file": "train.py", "function": "step", "text": ""}
    script = ev.Site, {**site, "line": 4, "first": 2}
    whole = ev.Site, {**site, "id": 199, "function": "<module>", "line": 6, "first": 1, "body": LOOP + made}
    scheduled = (ev.Scheduled, {"kind": "StepLR", "times": 2, "site": 200, "bursts": 4})
    rank = [whole, script, wrapped(3), optimizer(wrapper=0), stepped("gh", backwards=1), scheduled]
    (finding,) = run_findings(world(rank, rank), "optimizer-sync")
    assert finding.cause == (
        f"every rank steps it once for each of 2 ranks, in `for _ in range(self.steps):` (line 3){told}"
    )


# --- an optimizer of the program's own that has collectives in its steps


def own_optimizer(gradients, parameters="pp", **more):
    """Muon: the program's own class, over parameters of a wrapper, with a collective in every step."""
    return [
        wrapped(1),
        optimizer(names="ab", wrapper=0, torchs=False),
        stepped(gradients, parameters, collectives=2, **more),
        transfers(others=9),
    ]


def test_what_ddp_averages_is_compared_whatever_the_optimizer_exchanges():
    """Each owner steps its matrix, and all gather the results: the gradients were the same before."""
    (judged,) = run_judged(world(own_optimizer("gh"), own_optimizer("gh")), "gradient-sync")
    assert (judged.checked, judged.findings) == (1, ())


def test_gradients_that_differ_and_bring_about_the_same_step():
    """Votes on signs: no claim on entry, and the reason says so."""
    (judged,) = run_judged(world(own_optimizer("gh"), own_optimizer("ij")), "gradient-sync")
    assert (judged.checked, judged.findings) == (0, ())
    assert "saw gradients differ on entry" in judged.skipped_because


def test_gradients_that_differ_and_drive_the_ranks_apart():
    """A log of the loss is a collective, too: nothing evens out what one rank has done."""
    assert "gradient-sync" in checks(own_optimizer("gh"), own_optimizer("gi", "pq"))


def test_no_step_is_the_reason_where_there_was_none():
    """A wrapper alone is not compared after steps."""
    (judged,) = run_judged(world([wrapped(1)], [wrapped(1)]), "parameter-sync")
    assert judged.skipped_because == "ddpcheck saw no optimizer step"
