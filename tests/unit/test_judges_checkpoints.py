"""The judges of checkpoint assertions, over evidence written by hand."""

from __future__ import annotations

import msgspec
import pytest
from ddpcheck.checks.recorded import Recorded
from ddpcheck.checks.resuming import ADVICE, Loaded, Resumed

from ddpcheck import evidence as ev
from ddpcheck.checks import judge
from ddpcheck.evidence.planted_kills import Kill, Killed
from ddpcheck.evidence.training_state import Failure, Value
from ddpcheck.vocabulary.model import Finding


def judged(check: str, *facts: msgspec.Struct | None) -> tuple[Finding, ...]:
    """The findings on these facts, one for each rank, sent as they would be."""
    found = judge(check, [None if fact is None else msgspec.to_builtins(fact) for fact in facts], ())
    assert isinstance(found, tuple)
    return found


def weight(text: str, kind: str = "parameter", device: str = "cpu") -> Value:
    return Value(kind=kind, digest=text, shown=f"float32[2] {text}", device=device, form="float32[2]")  # type: ignore[arg-type]


# --- loads


def test_all_that_was_saved_is_there() -> None:
    """What equals the saved is complete, whatever it was before."""
    saved = {"model.w": weight("a"), "model.b": weight("b", "buffer")}
    assert judged("checkpoint-load-complete", *[Loaded(saved=saved, before={}, after=saved)] * 2) == ()


def test_a_buffer_of_another_rank_counts_as_loaded() -> None:
    """A checkpoint has one rank's statistics: they are the saved ones on every rank."""
    mine, others = {"m": weight("a", "buffer")}, {"m": weight("b", "buffer")}
    facts = [Loaded(saved=mine, after=mine), Loaded(saved=others, after=mine)]
    assert judged("checkpoint-load-complete", *facts) == ()


@pytest.mark.parametrize("kind", ["parameter", "buffer"])
def test_untouched(kind: str) -> None:
    """What is as before the load, and not as saved, was left out."""
    saved = {"model.w": weight("a", kind), "model.v": weight("b", kind)}
    after = {"model.w": weight("x", kind), "model.v": weight("b", kind)}
    before = {"model.w": weight("x", kind), "model.v": weight("y", kind)}
    (finding,) = judged("checkpoint-load-complete", Loaded(saved=saved, before=before, after=after))
    assert (finding.subject, finding.count, finding.ranks) == ("model.w", 1, (0,))
    assert finding.found.startswith(
        "1 of 2 untouched by the load on rank 0 (model.w); model.w on rank 0 is float32[2] x"
    )
    assert "strict=False" in finding.cause


def test_something_else_was_loaded() -> None:
    """On one rank of two, another value than saved, and than before."""
    saved = {"w": weight("a")}
    right = Loaded(saved=saved, before={"w": weight("x")}, after=saved)
    wrong = Loaded(saved=saved, before={"w": weight("y")}, after={"w": weight("z")})
    (finding,) = judged("checkpoint-load-complete", right, wrong)
    assert finding.ranks == (1,)
    assert "other than saved after the load" in finding.found
    assert "rank 1 loaded something else" in finding.cause


def test_what_a_load_has_left_as_it_was() -> None:
    """Without anything saved to compare with, it is told what is left of the values before."""
    after = {"w": weight("a"), "b": weight("c"), "lr": Value(kind="optimizer", shown="0.1")}
    assert judged("checkpoint-load-complete", Loaded(after=after)) == ()
    (finding,) = judged("checkpoint-load-complete", Loaded(after=after, left={"b": (2, 2)}))
    assert finding.subject == "b"
    assert finding.found.startswith("1 of 2 untouched by the load on rank 0 (b)")


def test_what_a_load_has_left_of_a_tensor() -> None:
    """A tensor that was written in part is none that was loaded."""
    after = {"e": weight("a"), "b": weight("c")}
    (finding,) = judged("checkpoint-load-complete", Loaded(after=after), Loaded(after=after, left={"e": (30, 100)}))
    assert (finding.subject, finding.ranks, finding.count) == ("e", (1,), 1)
    assert finding.found == "30 of 100 elements of e untouched by the load on rank 1"


def test_what_could_not_be_overwritten() -> None:
    """It is named, as a warning."""
    (finding,) = judged("checkpoint-load-complete", Loaded(not_looked_at=("table",)))
    assert (finding.severity, finding.subject) == ("warning", "table")


def test_other_forms_are_other_values() -> None:
    """The same bytes in another dtype or shape are something else."""
    saved, other = weight("a"), Value(kind="parameter", digest="a", form="float32[2, 1]")
    assert not saved.equals(other)
    assert not saved.equals(None)
    assert saved.equals(weight("a", device="cuda:1"))


# --- resumes


def resumed(**changes: object) -> Resumed:
    same = {
        "w": weight("a1"),
        "opt.lr": Value(kind="optimizer", shown="0.1"),
        "random state of torch": Value(kind="random", digest="r1"),
    }
    later = {**same, "w": weight("a2"), "random state of torch": Value(kind="random", digest="r2")}
    facts = {"steps": 3, "saved": same, "loaded": same, "went_on": later, "resumed": later,
             "batches_went_on": ("p", "q", "r"), "batches_resumed": ("p", "q", "r")}  # fmt: skip
    return Resumed(**(facts | changes))  # type: ignore[arg-type]


def test_the_same_after_a_resume() -> None:
    """Equal in everything is held."""
    assert judged("resume-equivalence", resumed(), resumed()) == ()


def test_a_difference_after_the_steps_alone() -> None:
    """All was restored as far as can be seen, and yet the steps differ."""
    one = resumed()
    (finding,) = judged("resume-equivalence", resumed(resumed={**one.resumed, "w": weight("z")}), one)
    assert finding.ranks == (0,)
    assert "something else has to be saved" in finding.cause


def test_what_was_not_restored_comes_first() -> None:
    """Of several differences, the one that was there right after the load is the cause."""
    one = resumed()
    worse = resumed(
        loaded={**one.loaded, "opt.lr": Value(kind="optimizer", shown="0.5")},
        resumed={**one.resumed, "w": weight("z"), "opt.lr": Value(kind="optimizer", shown="0.5")},
    )
    (finding,) = judged("resume-equivalence", worse, worse)
    assert (finding.subject, finding.count) == ("opt.lr", 2)
    assert finding.advice == ADVICE["optimizer"]
    assert "not restored by the load: opt.lr" in finding.cause


def test_another_batch() -> None:
    """The first step with another batch is told; also where a resumed training has fewer."""
    (finding,) = judged("resume-equivalence", resumed(batches_resumed=("p", "x", "y")))
    assert "another batch from step 2 after the load on" in finding.found
    (finding,) = judged("resume-equivalence", resumed(batches_resumed=("p",)))
    assert "from step 2" in finding.found
    assert finding.advice == ADVICE["batches"]


def test_one_ranks_stream_everywhere() -> None:
    """All ranks hold what one of them has saved."""
    name = "random state of torch"
    facts = []
    for rank in range(2):
        saved = {name: Value(kind="random", digest=f"s{rank}")}
        loaded = {name: Value(kind="random", digest="s0")}
        on = {name: Value(kind="random", digest=f"t{rank}")}
        facts.append(
            Resumed(steps=1, saved=saved, loaded=loaded, went_on=on, resumed={name: Value(kind="random", digest="t0")})
        )
    (finding,) = judged("resume-equivalence", *facts)
    assert finding.ranks == (1,)
    assert "one rank's state was restored on every rank" in finding.cause


def test_idle_and_ignored_are_not_compared() -> None:
    """A stream that no step moves, and what the caller has named, may differ."""
    one = resumed()
    other = {**one.resumed, "random state of torch": Value(kind="random", digest="zz")}
    assert judged("resume-equivalence", resumed(resumed=other, idle=frozenset({"random state of torch"}))) == ()
    assert judged("resume-equivalence", resumed(resumed=other, ignored=frozenset({"random state of torch"}))) == ()
    below = {**one.resumed, "stats.count": Value(kind="counter", shown="2")}
    assert judged("resume-equivalence", resumed(resumed=below, ignored=frozenset({"stats"}))) == ()
    assert len(judged("resume-equivalence", resumed(resumed=below, ignored=frozenset({"stat"})))) == 1


# --- kills


def test_kills_that_lose_nothing() -> None:
    """Old or new, whole, is held."""
    tried = Killed(kills=(Kill(moment="early", left="old"), Kill(moment="late", left="new")))
    assert judged("checkpoint-atomic-save", tried, Killed()) == ()


@pytest.mark.parametrize("left", ["other", "raised"])
def test_a_kill_that_loses_both(left: str) -> None:
    """Neither, or an error at the load, is lost: with the rank, the moment and how many of them."""
    lost = Kill(moment="after 5 of 9 bytes of a.pt", left=left, detail="EOFError")  # type: ignore[arg-type]
    (finding,) = judged("checkpoint-atomic-save", Killed(kills=(Kill(moment="early", left="old"), lost)), Killed())
    assert (finding.severity, finding.ranks, finding.count) == ("error", (0,), 1)
    assert "1 kill of 2" in finding.found
    assert "killed after 5 of 9 bytes of a.pt" in finding.found


def test_kills_that_could_not_be_planted() -> None:
    """Nothing was tried: a warning with the reason, and never a verdict."""
    for facts in ((Killed(not_tried="CUDA does not work"), Killed()), (Killed(), Killed())):
        (finding,) = judged("checkpoint-atomic-save", *facts)
        assert finding.severity == "warning"
    assert finding.found == "none: no rank that writes a file"


# --- calls that raise


def failure(message: str, **more: object) -> Failure:
    return Failure(**({"doing": "load", "kind": "RuntimeError", "message": message} | more))  # type: ignore[arg-type]


def test_the_first_differing_key() -> None:
    """Of torch's long message, the first key that is missing, that is foreign, and that is of another size."""
    message = (
        'Error(s) in loading state_dict for Net:\n\tMissing key(s) in state_dict: "a.weight", "b". \n\t'
        'Unexpected key(s) in state_dict: "z", "y". \n\tsize mismatch for c.bias: copying a param with shape '
        "torch.Size([3]) from checkpoint, the shape in current model is torch.Size([4])."
    )
    (finding,) = judged("checkpoint-load-complete", *[Loaded(failure=failure(message, file="m.pt"))] * 2)
    assert finding.subject == "file m.pt"
    assert finding.ranks == (0, 1)
    assert "has no key 'a.weight'; the checkpoint has a key 'z'" in finding.found
    assert "c.bias is of another size: copying a param" in finding.found


def test_own_failures_before_felt_ones() -> None:
    """A rank that has only lost its peer is not at fault; where all have, they are told."""
    own, felt = failure("no space", doing="save"), failure("Connection closed by peer", doing="save", reaction=True)
    for check, kind in (("checkpoint-single-writer", Recorded), ("checkpoint-read-after-write", Recorded)):
        (finding,) = judged(check, kind(evidence=joined(0), failure=felt), kind(evidence=joined(1), failure=own))
        assert (finding.check, finding.ranks) == ("rank-failure", (1,))
    (finding,) = judged("checkpoint-load-complete", Loaded(failure=felt), Loaded(failure=felt))
    assert finding.ranks == (0, 1)


def test_ranks_that_did_not_come() -> None:
    """One rank cannot go on and the other is stuck elsewhere: what came is judged."""
    facts = Loaded(failure=failure("invalid load key", file="m.pt", state="not a checkpoint"))
    for where in (0, 1):
        come = [facts if rank == where else None for rank in range(2)]
        (finding,) = judged("checkpoint-load-complete", *come)
        assert finding.ranks == (where,)
        assert "no file that torch.save has written" in finding.cause
    own = Recorded(evidence=joined(1), failure=failure("no space", doing="save"))
    (finding,) = judged("checkpoint-single-writer", None, own)
    assert finding.ranks == (1,)


# --- devices


def joined(rank: int) -> bytes:
    """The records of a rank that does nothing."""
    return ev.frame(ev.Joined(n=1, at=1.0, rank=rank, world_size=2, token="t", backend="gloo", local_rank=rank, site=0))


def loading(rank: int, device: str, given: str = "") -> bytes:
    """The records of a rank that loads a file to a device."""
    read = ev.File(
        n=2, at=2.0, op="read", how="torch.load", path="/x/m.pt", target="", site=0, ended=3, existed=True, thread="",
        device=given, devices=[device], keys=["w"],
    )  # fmt: skip
    return joined(rank) + ev.frame(read)


def test_tensors_on_another_ranks_device() -> None:
    """A load that puts tensors on a GPU which is not the rank's is told, with how it was called."""
    facts = [Recorded(evidence=loading(rank, "cuda:0"), own=(f"cuda:{rank}",)) for rank in range(2)]
    (finding,) = judged("checkpoint-map-location", *facts)
    assert (finding.severity, finding.ranks) == ("error", (1,))
    assert "tensors on cuda:0 after torch.load with no map_location" in finding.found


def test_tensors_on_the_own_device_or_the_cpu() -> None:
    """Where they belong, and on the CPU, they are right."""
    for device, given in (("cuda:1", "cuda:1"), ("cpu", "cpu")):
        facts = Recorded(evidence=loading(1, device, given), own=("cuda:1",))
        assert judged("checkpoint-map-location", Recorded(evidence=joined(0), own=("cuda:0",)), facts) == ()


def test_parameters_that_a_load_has_moved() -> None:
    """A load that puts other tensors in place of the model's own has moved them."""
    moved = Recorded(evidence=joined(1), own=("cuda:1",), moved={"model.w": ("cuda:1", "cuda:0")})
    (finding,) = judged("checkpoint-map-location", Recorded(evidence=joined(0), own=("cuda:0",)), moved)
    assert (finding.subject, finding.ranks) == ("model.w", (1,))
    assert "model.w on cuda:0 on rank 1" in finding.found
