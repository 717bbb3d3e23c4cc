"""Assertions of models and of data inside a ``ddp`` test.

Every assertion is collective: all ranks call it, and all get the same verdict.
The evidence travels outside of the process group under test, so that an
assertion adds no collective, hides no race, and turns no violation into a
hang. One that only some ranks call is itself reported.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ddpcheck.ranks.current_rank import current
from ddpcheck.ranks.judged_assertion import assert_judged
from ddpcheck.ranks.messages import EVIDENCE

if TYPE_CHECKING:
    import torch


def assert_replicas_identical(module: torch.nn.Module, *, rtol: float = 0.0, atol: float = 0.0) -> int:
    """Fail unless all ranks hold the same model, or of one on a mesh, what they are declared to hold alike.

    Until an optimizer of this test has stepped the model, its parameters and
    buffers are compared with rank 0's (`initial-broadcast`); afterwards its
    parameters with each other (`parameter-sync`).

    ``module`` is a module, in DistributedDataParallel or not. Where it has
    DTensors (FSDP2, HSDP, tensor parallel, several of these), or DDP goes over
    one dimension of a mesh, those ranks are compared that hold the same
    elements by placements or wrapper; plain tensors beside DTensors are left
    out, and a model of which nothing is compared fails. Elements may differ
    by ``atol + rtol * |reference|``; by default not by a bit. Raises an
    AssertionError that names the parameter, the ranks, and the worst element.

    Returns how many tensors of this rank were compared with another's; 0
    where a warning says that nothing was checked.
    """
    __tracebackhide__ = True
    from ddpcheck.probes.ddp import model_state
    from ddpcheck.probes.optimizers import steps

    if steps.have_been_stepped(parameter for _, parameter in model_state.named_parameters(module)):
        check, tensors = "parameter-sync", model_state.parameters(module)
    else:
        check, tensors = "initial-broadcast", model_state.parameters(module) + model_state.buffers(module)
    return _assert_state(check, "assert_replicas_identical", module, tensors, rtol, atol)


def assert_initial_broadcast(module: torch.nn.Module) -> int:
    """Fail unless all ranks hold rank 0's parameters and buffers, to the bit (`initial-broadcast`).

    Of a model on a mesh, as `assert_replicas_identical`. For the
    time between DDP's constructor and the first optimizer step.
    """
    __tracebackhide__ = True
    from ddpcheck.probes.ddp import model_state

    tensors = model_state.parameters(module) + model_state.buffers(module)
    return _assert_state("initial-broadcast", "assert_initial_broadcast", module, tensors, 0.0, 0.0)


def assert_parameters_identical(module: torch.nn.Module, *, rtol: float = 0.0, atol: float = 0.0) -> int:
    """Fail unless all ranks hold the same parameters (`parameter-sync`).

    Of a model on a mesh, as `assert_replicas_identical`. Elements may
    differ by ``atol + rtol * |reference|``; by default not by a bit.
    """
    __tracebackhide__ = True
    from ddpcheck.probes.ddp import model_state

    return _assert_state(
        "parameter-sync", "assert_parameters_identical", module, model_state.parameters(module), rtol, atol
    )


def assert_gradients_identical(module: torch.nn.Module, *, rtol: float = 0.0, atol: float = 0.0) -> int:
    """Fail unless all ranks hold the same gradients (`gradient-sync`).

    To be called after ``backward()`` and before ``optimizer.step()``. A
    parameter that has a gradient on some ranks only is a violation; a model
    without any gradient on any rank is one too, since nothing was checked. Of
    a model on a mesh, as `assert_replicas_identical`.
    """
    __tracebackhide__ = True
    from ddpcheck.probes.ddp import model_state

    return _assert_state(
        "gradient-sync", "assert_gradients_identical", module, model_state.gradients(module), rtol, atol
    )


def assert_shards_partition(data: Any, *, dataset: Any = None) -> None:
    """Fail unless the ranks' samples of an epoch are disjoint and cover the dataset (`shard-partition`).

    ``data`` is a DataLoader, a sampler (with its ``dataset``, where it does not
    hold it), or any iterable of batches. Samples are judged by content, since
    equal indices are not equal samples; so ranks whose datasets differ in much
    (a random split without a common seed) are found, too; where they have
    nothing in common, that is a warning. Samples that a sampler repeats to even
    the ranks out, and those that ``drop_last`` drops, are told apart from an
    overlap and from a gap. The random states of the process, the loader, the
    sampler and the dataset are put back, and no epoch is used up.
    """
    __tracebackhide__ = True
    from ddpcheck.probes.data.one_epoch import Epoch

    epoch = Epoch(data, dataset)
    answers = {"occurrences": epoch.occurrences}
    assert_judged("shard-partition", "assert_shards_partition", epoch.shards(), answers)


def assert_batch_count(data: Any, *, consumed: int | None = None) -> None:
    """Fail unless all ranks have equally many batches, as many as the sizes imply (`batch-count`).

    ``data`` is a DataLoader or an iterable of batches; the number implied by
    the dataset's size, world size, batch size and drop_last is held against
    the loader's, or against ``consumed``: what the training loop has counted.
    """
    __tracebackhide__ = True
    from ddpcheck.probes.data.one_epoch import Epoch

    assert_judged("batch-count", "assert_batch_count", Epoch(data).batches(consumed))


def assert_epochs_reshuffled(data: Any) -> None:
    """Fail unless every epoch so far has had an order of its own (`epoch-reshuffle`).

    ``data`` is a DataLoader with a shuffling DistributedSampler, or that
    sampler. To be called after two epochs or more; what this rank has drawn
    from the sampler is on record since the test began.
    """
    __tracebackhide__ = True
    from ddpcheck.probes.data import sampler_order
    from ddpcheck.probes.data.one_epoch import deciding_sampler

    assert_judged("epoch-reshuffle", "assert_epochs_reshuffled", sampler_order.epochs(deciding_sampler(data)))


def _assert_state(check: str, title: str, module: torch.nn.Module, tensors: list[Any], rtol: float, atol: float) -> int:
    __tracebackhide__ = True
    from ddpcheck.probes.ddp import model_state
    from ddpcheck.probes.optimizers import at_a_line

    rank = current(f"ddpcheck.{title}")
    facts = model_state.facts(module, tensors, rtol, atol)
    answers = model_state.answers(tensors, rank._evidence_dir, rank.rank)
    gradients = check == "gradient-sync"
    answers[EVIDENCE] = lambda _: at_a_line.evidence(module, gradients)
    return facts.compared(rank.world_size) if assert_judged(check, title, facts, answers) else 0
