"""A pair of save and load, held as a whole: what a correct one passes, and what each fault is told as."""

from __future__ import annotations

import functools
import os
import threading
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import ddpcheck
from ddpcheck.vocabulary.model import Finding
from tests.checkpoints import trainer as good
from tests.checkpoints.trainer import Trainer, inner


def resumable(save: Any = good.save, load: Any = good.load, **options: Any) -> None:
    options.setdefault("kills", 0)
    ddpcheck.assert_checkpoint_resumable(save, load, build=Trainer, step=Trainer.step, **options)


def violated(save: Any = good.save, load: Any = good.load, **options: Any) -> Finding:
    """The one finding on this pair, which names a line of this file."""
    with pytest.raises(ddpcheck.Violation) as caught:
        resumable(save, load, **options)
    (finding,) = caught.value.findings
    assert finding.severity == "error"
    assert finding.where is not None
    assert "/ddpcheck/" not in finding.where.file.replace("/tests/", "/")
    return finding


# --- right


@pytest.mark.ddp(world_size=[1, 2, 3])
@pytest.mark.few(1)
def test_a_correct_pair_holds(ddp):
    """Everything is saved and loaded; all invariants hold, planted kills too, and random states are as before."""
    torch.manual_seed(5)
    before = torch.get_rng_state()

    resumable(kills=12)

    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.ddp(world_size=2)
def test_in_the_midst_of_an_epoch_and_at_its_end(ddp):
    """Wherever in the epoch of four batches the save falls, the batches that follow are those of no stop."""
    for before in (1, 4, 6):
        resumable(before=before, after=4, bare=False)


@pytest.mark.ddp(world_size=2)
def test_rank_0_loads_and_broadcasts(ddp):
    """Loading on one rank is right where the others are sent what it has read."""

    def load(trainer: Trainer, path: Path) -> None:
        state = [torch.load(path, map_location="cpu", weights_only=False) if dist.get_rank() == 0 else None]
        dist.broadcast_object_list(state, src=0)
        good.put_back(trainer, state[0])

    resumable(load=load, kills=6)


@pytest.mark.ddp(world_size=2)
def test_loaded_before_the_wrap(ddp):
    """A load may build the training itself, and wrap what it has loaded: it returns what goes on."""

    def load(trainer: Trainer, path: Path) -> Trainer:
        fresh = Trainer(lambda module: module)
        good.load(fresh, path)
        if isinstance(trainer.model, DistributedDataParallel):
            fresh.model = DistributedDataParallel(fresh.model)
        return fresh

    resumable(load=load, kills=6)


@pytest.mark.ddp(world_size=2)
def test_counters_that_training_does_not_depend_on_can_be_left_out(ddp):
    """A number that every step moves and no checkpoint has is a difference; ``ignore`` says that it is meant."""

    def step(trainer: Trainer) -> None:
        trainer.step()
        trainer.calls = getattr(trainer, "calls", 0) + 1  # type: ignore[attr-defined]

    options = {"build": Trainer, "step": step}
    with pytest.raises(ddpcheck.Violation) as caught:
        ddpcheck.assert_resume_equivalent(good.save, good.load, **options)
    assert caught.value.findings[0].subject == "calls"
    ddpcheck.assert_resume_equivalent(good.save, good.load, **options, ignore=["calls"])


@pytest.mark.ddp(world_size=2)
def test_a_name_to_ignore_that_is_none(ddp):
    """A slip in ``ignore`` is refused, with the name that was meant."""
    with pytest.raises(ValueError, match=r"ignore has 'epochs', and the training holds nothing of that name.*'epoch'"):
        resumable(ignore=["epochs"])


# --- saved wrongly


@pytest.mark.ddp(world_size=[2, 3])
def test_every_rank_saves(ddp):
    """All ranks write one path: told, though each has put a whole file there."""

    def save(trainer: Trainer, path: Path) -> None:
        torch.save(good.state_of(trainer), path)
        dist.barrier()

    finding = violated(save)
    assert finding.check == "checkpoint-single-writer"
    assert finding.ranks == tuple(range(ddp.world_size))
    assert "checkpoint.pt" in finding.found


@pytest.mark.ddp(world_size=2)
def test_nothing_is_saved(ddp):
    """That no write was seen is a warning; that there is nothing to load is a violation."""
    with pytest.warns(ddpcheck.AtRisk, match="no rank writing one"):
        finding = violated(lambda trainer, path: None)
    assert finding.check == "checkpoint-load-complete"
    assert "there is no such file" in finding.cause


@pytest.mark.ddp(world_size=2)
def test_no_barrier_after_the_save(ddp):
    """Nothing keeps rank 1's load after rank 0's save: told, although the file is whole by the time of the load."""

    def save(trainer: Trainer, path: Path) -> None:
        state = good.state_of(trainer)
        if dist.get_rank() == 0:
            draft = path.with_suffix(".draft")
            torch.save(state, draft)
            os.replace(draft, path)

    finding = violated(save)
    assert finding.check == "checkpoint-read-after-write"
    assert finding.ranks == (1,)


@pytest.mark.ddp(world_size=2)
def test_saved_in_a_thread_that_nobody_joins(ddp):
    """A barrier does not wait for a thread: the twin joins it first."""

    def save(trainer: Trainer, path: Path, join: bool) -> None:
        state = good.state_of(trainer)
        if dist.get_rank() == 0:
            thread = threading.Thread(target=_write, args=(state, path))
            thread.start()
            if join:
                thread.join()
        dist.barrier()

    finding = violated(functools.partial(save, join=False))
    assert finding.check == "checkpoint-read-after-write"
    resumable(functools.partial(save, join=True), bare=False)


def _write(state: dict[str, Any], path: Path) -> None:
    draft = path.with_suffix(".draft")
    torch.save(state, draft)
    os.replace(draft, path)


@pytest.mark.ddp(world_size=2)
def test_a_save_that_raises_on_one_rank(ddp):
    """The rank and its error are told, and nobody waits for the deadline while the others sit in a barrier."""

    def save(trainer: Trainer, path: Path) -> None:
        if dist.get_rank() == 1:
            raise OSError(28, "No space left on device", "checkpoint.pt")
        dist.barrier()

    if ddp.rank == 1:
        finding = violated(save)
        assert finding.check == "rank-failure"
        assert finding.ranks == (1,)
        assert "No space left on device" in finding.found
        torch.zeros(2).share_memory_()
        dist.barrier()
    else:
        with pytest.raises(ddpcheck.Violation):
            resumable(save)


# --- loaded wrongly


@pytest.mark.ddp(world_size=2)
@pytest.mark.parametrize(
    ("left_out", "subject", "kind"),
    [
        ("optimizer", "optimizer.", "optimizer"),
        ("scheduler", "scheduler.", "scheduler"),
        ("scaler", "scaler.", "scaler"),
        ("epoch", "sampler.epoch", "epoch"),
        ("place", "done", "batch"),
        ("streams", "random state of ", "random"),
    ],
)
@pytest.mark.few(2)
def test_something_is_not_loaded(ddp, left_out, subject, kind):
    """Whatever is saved and not loaded is named, and so is what to do."""
    finding = violated(load=functools.partial(good.load, leave_out=left_out), before=6)
    assert finding.check == "resume-equivalence"
    assert finding.ranks == (0, 1)
    assert finding.subject.startswith(subject), finding.message
    assert kind in finding.advice


@pytest.mark.ddp(world_size=2)
def test_random_states_of_rank_0_on_every_rank(ddp):
    """Rank 0's random states restored everywhere: told as that."""

    def load(trainer: Trainer, path: Path) -> None:
        good.put_back(trainer, torch.load(path, map_location="cpu", weights_only=False), streams_of=0)

    finding = violated(load=load)
    assert finding.check == "resume-equivalence"
    assert "one rank's state was restored on every rank" in finding.cause


@pytest.mark.ddp(world_size=2)
def test_model_is_not_loaded(ddp):
    """A load that leaves the model out leaves every parameter untouched."""
    finding = violated(load=functools.partial(good.load, leave_out="model"))
    assert finding.check == "checkpoint-load-complete"
    assert finding.count == 9
    assert finding.ranks == (0, 1)


@pytest.mark.ddp(world_size=2)
def test_only_rank_0_loads(ddp):
    """After the wrap, DDP sends nothing to the others: rank 1 keeps what it had."""

    def load(trainer: Trainer, path: Path) -> None:
        if dist.get_rank() == 0:
            good.load(trainer, path)

    finding = violated(load=load)
    assert finding.check == "checkpoint-load-complete"
    assert finding.ranks == (1,)


def _save_the_wrappers(trainer: Trainer, path: Path) -> None:
    state = good.state_of(trainer) | {"model": trainer.model.state_dict()}
    if dist.get_rank() == 0:
        _write(state, path)
    dist.barrier()


@pytest.mark.ddp(world_size=2)
def test_prefix_of_the_wrapper(ddp):
    """Keys with ``module.`` do not fit the module inside: the first key that differs is named."""
    finding = violated(_save_the_wrappers)
    assert finding.check == "checkpoint-load-complete"
    assert "module.0.weight" in finding.found
    assert "DistributedDataParallel puts there" in finding.cause
    assert "checkpoint.pt" in finding.subject


@pytest.mark.ddp(world_size=2)
def test_prefix_with_strict_false(ddp):
    """With strict=False nothing is refused, and nothing is loaded."""

    def load(trainer: Trainer, path: Path) -> None:
        state = torch.load(path, map_location="cpu", weights_only=False)
        inner(trainer.model).load_state_dict(state["model"], strict=False)
        good.put_back(trainer, state, leave_out="model")

    finding = violated(_save_the_wrappers, load)
    assert finding.check == "checkpoint-load-complete"
    assert "nothing was loaded" in finding.cause


@pytest.mark.ddp(world_size=2)
def test_a_checkpoint_for_wrappers_alone(ddp):
    """Saved from the wrapper and loaded into the wrapper it goes on well, and does not fit bare modules."""

    def load(trainer: Trainer, path: Path) -> None:
        state = torch.load(path, map_location="cpu", weights_only=False)
        trainer.model.load_state_dict(state["model"])
        good.put_back(trainer, state, leave_out="model")

    finding = violated(_save_the_wrappers, load)
    assert finding.check == "checkpoint-load-complete"
    assert "module.0.weight" in finding.found
    resumable(_save_the_wrappers, load, bare=False)


# --- wrong usage


@pytest.mark.ddp(world_size=2)
def test_arguments_that_are_no_functions(ddp):
    """What is no function is named, before anything is built."""
    with pytest.raises(TypeError, match=r"resumable: load is to be a function, and 'model.pt' is none"):
        ddpcheck.assert_checkpoint_resumable(good.save, "model.pt", build=Trainer, step=Trainer.step)


def test_outside_of_a_rank():
    """Outside of a rank the assertion says so."""
    with pytest.raises(ddpcheck.OutsideRank, match="assert_checkpoint_resumable"):
        resumable()


class Counted(nn.Module):
    """A module with a buffer that its state_dict does not have."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(2, 1)
        self.register_buffer("seen", torch.zeros(1), persistent=False)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        self.seen += 1
        return self.linear(inputs) * self.seen


@pytest.mark.ddp(world_size=2)
def test_a_buffer_that_is_not_saved(ddp):
    """A buffer that is not persistent is lost at a resume: told where it changes what follows."""

    def build(wrap: Any) -> dict[str, Any]:
        model = wrap(Counted())
        return {"model": model, "optimizer": torch.optim.SGD(model.parameters(), lr=0.1)}

    def step(training: dict[str, Any]) -> None:
        training["optimizer"].zero_grad()
        training["model"](torch.ones(2, 2)).sum().backward()
        training["optimizer"].step()

    def save(training: dict[str, Any], path: Path) -> None:
        if dist.get_rank() == 0:
            _write({name: one.state_dict() for name, one in training.items()}, path)
        dist.barrier()

    def load(training: dict[str, Any], path: Path) -> None:
        state = torch.load(path, map_location="cpu", weights_only=True)
        for name, one in training.items():
            one.load_state_dict(state[name])

    with pytest.raises(ddpcheck.Violation) as caught:
        ddpcheck.assert_resume_equivalent(save, load, build=build, step=step)
    finding = caught.value.findings[0]
    assert finding.subject == "model.seen"
    assert "persistent" in finding.advice
