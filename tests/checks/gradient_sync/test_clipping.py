"""Where the text of a step's own function clips before it, the fix names the line, and a library's own way to clip."""

from __future__ import annotations

import textwrap

import pytest
from msgspec.structs import replace

from ddpcheck import evidence as ev
from ddpcheck.checks.registry import judge_of
from ddpcheck.verdict.library_terms import in_its_terms
from tests.judging.training_steps import digests, optimizer, stepped
from tests.judging.written import transfers, world, wrapped

USUAL = "Treat gradients alike on every rank between backward() and step()"
CLIPPED = """
def train():
    loss.backward()
    if rank == 0:
        clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
"""


def found(source, through=()):
    """The finding of two ranks whose gradients part after backward(), at the step of this program."""
    source = textwrap.dedent(source).strip("\n")
    lines = source.splitlines()
    step, backward = (
        next(n for n, line in enumerate(lines, 1) if text in line) for text in ("optimizer.step", "backward")
    )
    usage = ev.Usage(wrapper=0, forwards=1, armed=1, reached=1, backwards=1, after=digests("gh"))
    ranks = [
        [wrapped(50), optimizer(0, 51), stepped(step, own, usage=[usage], backward_site=backward), transfers()]
        for own in ("gh", "ij")
    ]
    the_world = world(*ranks)
    for rank in the_world:
        for site in rank.process.of(ev.Site)[: len(lines)]:
            rank.process.add([replace(site, function="train", first=1, body=source + "\n")])
        rank.process.add([replace(one, through=through) for one in rank.process.of(ev.Site) if one.id == 50])
    return in_its_terms(judge_of("gradient-sync", "run")(the_world), the_world).findings[0]


def test_the_line_that_clips():
    finding = found(CLIPPED)
    assert finding.cause.startswith("they were equal when backward() ended")
    assert finding.advice == f"{USUAL}: clip them on all ranks or on none, by the same bound (train.py:4)."


@pytest.mark.parametrize(("through", "call"), [
    ("accelerate: Accelerator.prepare", "`accelerator.clip_grad_norm_(model.parameters(), max_norm)`"),
    ("lightning: Trainer.fit", "`Trainer(gradient_clip_val=...)`"),
    ("lightning: Fabric.setup", "`fabric.clip_gradients(model, optimizer, max_norm=...)`"),
    ("transformers: Trainer.train", "`TrainingArguments(max_grad_norm=...)`"),
])  # fmt: skip
def test_a_library_s_own_way(through, call):
    advice = found(CLIPPED, (through,)).advice
    assert call in advice
    assert advice.endswith("(train.py:4).")


@pytest.mark.parametrize("source", [
    CLIPPED.replace("clip_grad_norm_(model.parameters(), 1.0)", "scale(model)"),
    CLIPPED.replace("    loss.backward()", "    clip_grad_norm_(a, 1.0)\n    loss.backward()").replace(
        "        clip_grad_norm_(model.parameters(), 1.0)", "        scale(model)"),
    CLIPPED.replace("    if rank", "    clip_grad_norm_(a, 1.0)\n    if rank"),
    CLIPPED.replace("(model.parameters(), 1.0)", ""),
], ids=["nothing", "before backward", "two of them", "no call"])  # fmt: skip
def test_where_nothing_clips_or_more_than_one_place_does(source):
    assert found(source).advice == f"{USUAL}."
    assert found(source, ("accelerate: Accelerator.prepare",)).advice == f"{USUAL}."
