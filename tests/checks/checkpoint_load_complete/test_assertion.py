"""The judge of what a load leaves untouched, over evidence written by hand."""

from __future__ import annotations

import pytest

from ddpcheck.evidence.training_state import Loaded, Value
from tests.judging.checkpoint_facts import failure, judged, weight


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
