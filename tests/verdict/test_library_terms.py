"""A fix is told in the terms of the library that has set up the training; elsewhere in torch's."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from ddpcheck import evidence as ev
from ddpcheck.checks.registry import checks, part
from ddpcheck.judging import training_library
from ddpcheck.judging.world import Judged
from ddpcheck.verdict.library_terms import in_its_terms
from ddpcheck.vocabulary.model import CallSite, Finding
from tests.judging.written import world, wrapped

PREPARE = "accelerate: Accelerator.prepare"
LIBRARIES = {"accelerate", "lightning", "fabric", "transformers", "torchmetrics", "torch.distributed.checkpoint"}


def of_library(*through):
    """A world whose wrapper was made by a line that called into these libraries."""
    found = world([wrapped(3)], [wrapped(3)])
    for rank in found:
        site = next(s for s in rank.process.of(ev.Site) if s.id == 3)
        rank.process.add([replace(site, through=through)])
    return found


def fix(check, advice, the_world, where=None):
    finding = Finding(ranks=(0,), subject="s", expected="e", found="f", advice=advice, check=check, where=where)
    return in_its_terms(Judged(checked=1, findings=(finding,)), the_world).findings[0].advice


@pytest.mark.parametrize(("through", "library"), [
    ((PREPARE,), "accelerate"),
    (("lightning: Trainer.fit", "torchmetrics: Metric.update"), "lightning"),
    (("pytorch_lightning: Trainer.fit",), "lightning"),
    (("lightning: Fabric.setup",), "fabric"),
    (("lightning_fabric: Fabric.launch",), "fabric"),
    (("transformers: Trainer.train", PREPARE), "transformers"),  # whose user never calls what is inside of it
    ((), ""),
])  # fmt: skip
def test_which_library_it_is(through, library):
    """The outermost one that a line has called into."""
    assert training_library.of_world(of_library(*through)) == library


def test_a_fix_in_its_terms():
    usual = "Let all ranks meet between the two: dist.barrier() after the save, and before the load."
    told = fix("checkpoint-read-after-write", usual, of_library(PREPARE))
    assert told == usual.replace("dist.barrier()", "`accelerator.wait_for_everyone()`")
    of_trainer = of_library("transformers: Trainer.train", PREPARE)
    assert "`trainer.accelerator.wait_for_everyone()`" in fix("checkpoint-read-after-write", usual, of_trainer)
    for without in (of_library(), of_library("ray: train")):
        assert fix("checkpoint-read-after-write", usual, without) == usual


def test_the_lines_own_library_comes_first():
    """A program may use two; and the wrapper may be its own."""
    usual = next(iter(part("no-hang", "libraries").FIXES))
    where = CallSite(file="train.py", line=5, function="step", through=("lightning: LightningModule.log",))
    assert "self.log(" in fix("no-hang", usual, of_library(PREPARE), where)
    assert "accelerator" in fix("no-hang", usual, of_library(PREPARE))


@pytest.mark.parametrize(("through", "part_of_it"), [
    ("torchmetrics: Metric.compute", "sync_on_compute=False"),
    ("torch.distributed.checkpoint: save", "torch.distributed.checkpoint on every rank"),
])  # fmt: skip
def test_a_library_that_trains_nothing(through, part_of_it):
    """It has the word where it has one, and else the library that has set up the training has."""
    where = CallSite(file="train.py", line=5, function="step", through=(through,))
    take_out, evaluate, _ = part("no-hang", "libraries").FIXES
    for the_world in (of_library(), of_library(PREPARE)):
        assert part_of_it in fix("no-hang", take_out, the_world, where)
    assert fix("no-hang", evaluate, of_library(), where) == evaluate
    assert "accelerator.gather_for_metrics()" in fix("no-hang", evaluate, of_library(PREPARE), where)


def test_a_check_without_terms():
    assert fix("buffer-sync", "Broadcast them.", of_library(PREPARE)) == "Broadcast them."
    assert fix("mylib/other", "Broadcast them.", of_library(PREPARE)) == "Broadcast them."


@pytest.mark.parametrize("check", [check for check in checks() if part(check, "libraries") is not None])
def test_the_terms_of_a_check(check):
    """For libraries that there are, and each a sentence like the one that it stands for."""
    for usual, terms in part(check, "libraries").FIXES.items():
        assert set(terms) <= LIBRARIES
        assert all(one and (one[-1] == ".") == (usual[-1] == ".") for one in terms.values())


TERMS = [
    (check, usual, library, told)
    for check in checks() if part(check, "libraries") is not None
    for usual, terms in part(check, "libraries").FIXES.items()
    for library, told in terms.items()
]  # fmt: skip
CALLS = {"accelerate": PREPARE, "lightning": "lightning: Trainer.fit", "fabric": "lightning: Fabric.setup",
         "transformers": "transformers: Trainer.train"}  # fmt: skip


@pytest.mark.parametrize(("check", "usual", "library", "told"), TERMS)
def test_each_fix_is_told_in_its_library_and_in_no_other(check, usual, library, told):
    if library in CALLS:
        assert told in fix(check, usual, of_library(CALLS[library]))
    else:
        where = CallSite(file="train.py", line=5, function="step", through=(f"{library}: call",))
        assert told in fix(check, usual, of_library(), where)
    assert fix(check, usual, of_library("ray: train")) == usual
