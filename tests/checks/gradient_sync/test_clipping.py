"""Where a rank clips its gradients alone, the fix names the line, and a library's own way to clip."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from ddpcheck import evidence as ev
from ddpcheck.checks.registry import judge_of
from ddpcheck.verdict.library_terms import in_its_terms
from tests.facts.clips import norm
from tests.judging.training_steps import digests, optimizer, stepped
from tests.judging.written import transfers, world, wrapped

USUAL = "Treat gradients alike on every rank between backward() and step()"
CLIP = norm(0, [4.0], 0.5, largest=1.0, came=2.0)


def found(*norms, through=()):
    """The finding of two ranks whose gradients part after backward(); these are the measurements of the first one."""
    usage = ev.Usage(wrapper=0, forwards=1, armed=1, reached=1, backwards=1, after=digests("gh"))
    ranks = [
        [wrapped(50), optimizer(0, 51), *clips, stepped(60, own, usage=[usage]), transfers()]
        for own, clips in (("gh", norms), ("ij", ()))
    ]
    the_world = world(*ranks)
    for rank in the_world:
        rank.process.add([replace(one, through=through) for one in rank.process.of(ev.Site) if one.id == 50])
    return in_its_terms(judge_of("gradient-sync", "run")(the_world), the_world).findings[0]


def test_the_line_that_clips():
    finding = found(CLIP)
    assert finding.cause.startswith("they were equal when backward() ended")
    assert finding.advice == f"{USUAL}: clip them on all ranks or on none, by the same bound (train.py:7)."


@pytest.mark.parametrize(("through", "call"), [
    ("accelerate: Accelerator.prepare", "`accelerator.clip_grad_norm_(model.parameters(), max_norm)`"),
    ("lightning: Trainer.fit", "`Trainer(gradient_clip_val=...)`"),
    ("lightning: Fabric.setup", "`fabric.clip_gradients(model, optimizer, max_norm=...)`"),
    ("transformers: Trainer.train", "`TrainingArguments(max_grad_norm=...)`"),
])  # fmt: skip
def test_a_library_s_own_way(through, call):
    advice = found(CLIP, through=(through,)).advice
    assert call in advice
    assert advice.endswith("(train.py:7).")


@pytest.mark.parametrize("norms", [
    (),
    (norm(0, [4.0], 1.0, largest=9.0, came=2.0),),
    (norm(0, [4.0], 0.9999, largest=9.0, came=2.0),),
    (norm(0, [4.0], 0.5, largest=float("inf"), came=2.0),),
    (norm(0, [4.0], 0.5, largest=9.0, came=2.0, scale=2.0),),
    (norm(0, [4.0], 0.5, "all_reduce"),),
    (norm(1, [4.0], 0.5, largest=1.0, came=2.0),),
    (norm(0, [4.0], 0.5, largest=1.0, came=2.0, optimizer=1),),
], ids=["nothing", "below the bound", "rounding", "a norm for the log", "a scale", "by hand", "another step",
        "another optimizer"])  # fmt: skip
def test_where_nothing_clips(norms):
    assert found(*norms).advice == f"{USUAL}."
    assert found(*norms, through=("accelerate: Accelerator.prepare",)).advice == f"{USUAL}."
