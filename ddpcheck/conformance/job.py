"""What a trainer is given to do, as the author of its adapter sees it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.optim.lr_scheduler import LambdaLR, LRScheduler, ReduceLROnPlateau

from ddpcheck.conformance.losses import METRICS, Loss
from ddpcheck.trainings.situations import START, LossKind, Parallelism, Precision, Situation, decay

if TYPE_CHECKING:
    from torch.distributed.device_mesh import DeviceMesh
    from torch.optim import Optimizer
    from torch.utils.data import Dataset, Sampler

    from ddpcheck.conformance.datasets import Samples
    from ddpcheck.conformance.models import Net
    from ddpcheck.ranks.current_rank import CurrentRank

SEED = 7


class Job:
    """One training for an adapter to carry out: ``fit(job)`` trains ``job.model`` and returns.

    It runs in every rank. The process group exists, and ``RANK``,
    ``WORLD_SIZE``, ``LOCAL_RANK`` and ``LOCAL_WORLD_SIZE`` are in the
    environment, as under torchrun.
    """

    def __init__(
        self,
        situation: Situation,
        rank: CurrentRank,
        model: Net,
        dataset: Dataset[Any],
        validation: Samples | None,
        loss: Loss,
        folder: Path,
        report: Callable[[str, float], None],
        scheduled: Callable[[float], None],
    ) -> None:
        self._situation, self._report, self._scheduled = situation, report, scheduled
        self._made: tuple[Optimizer, LRScheduler | ReduceLROnPlateau | None] | None = None
        self.model: torch.nn.Module = model
        """To be trained, in place or as a copy. It is on the CPU, and differs between the ranks, as models do that
        each process has made for itself."""
        self.dataset: Dataset[Any] = dataset
        """Pairs of tensors (inputs, target), for torch's own DataLoader. The whole of it is on every rank; an iterable
        one shares itself out among the workers of one loader."""
        self.sampler: Sampler[int] | None = None
        """The order in which to take the samples, instead of ``shuffle``; None unless the job is about it."""
        self.validation: Dataset[Any] | None = validation
        """To be evaluated after each epoch, where it is not None; see ``report``."""
        self.loss: Loss = loss
        """``job.loss(outputs, targets)``: the mean over the samples, or what ``loss_kind`` says. ``job.loss.number(
        targets)`` is how many samples, or tokens, it takes the mean of."""
        self.metrics: Mapping[str, Callable[[Tensor, Tensor], float]] = METRICS
        """By name (loss, accuracy, recall, ranking): functions of all outputs and all targets of the validation set."""
        self.rank: int = rank.rank
        self.world_size: int = rank.world_size
        self.local_rank: int = rank.local_rank
        self.local_world_size: int = rank.local_world_size
        self.device: torch.device = rank.device
        """Where this rank computes."""
        self.backend: str = rank.backend
        self.loss_kind: LossKind = situation.loss
        """``samples``, ``tokens`` or ``pairs``: what the loss of the global batch is a mean over."""
        self.parallelism: Parallelism = situation.parallelism
        """``ddp``; or ``fsdp2``, ``hsdp`` or ``ddp-tp``, where the model is to be spread over ``mesh`` before it is
        trained: sharded, or cut by tensor parallelism and copied."""
        self.mesh: DeviceMesh | None = _mesh(situation, rank)
        """For ``fsdp2`` a mesh of one dimension, ``shard``; for ``hsdp`` one of ``replicate`` and ``shard``; for
        ``ddp-tp`` one of ``dp`` and ``tp``, where the ranks along ``tp`` are to take the same samples."""
        self.batch_size: int = situation.batch_size
        """Samples in a micro-batch of one rank."""
        self.epochs: int = situation.epochs
        self.accumulation: int = situation.accumulation
        """Micro-batches of each rank for one optimizer step."""
        self.clip_norm: float | None = situation.clip_norm
        """The greatest norm that the gradient of all parameters together may have at a step."""
        self.shuffle: bool = situation.shuffle
        self.drop_last: bool = situation.drop_last
        """Leave out the samples that do not fill a batch on every rank."""
        self.workers: int = situation.workers
        """``num_workers`` of the DataLoader."""
        self.precision: Precision = situation.precision
        """``float64`` or ``float32``, which model and data have already, or ``bfloat16`` for autocast over float32."""
        self.unused_parameters: bool = situation.finds_unused
        """Some parameters get no gradient in some steps: DDP needs ``find_unused_parameters``."""
        self.seed: int = SEED
        self.save_every: int | None = situation.save_every
        """Save a checkpoint after every so many optimizer steps; None for never."""
        self.checkpoint_folder: Path = folder
        """The ranks' common folder for checkpoints; what was left there is there when it is resumed."""
        self.resume: bool = bool(situation.resumed_from)
        """Go on from the newest checkpoint in the folder, as if the training had never been interrupted."""
        self.saved_world_size: int | None = situation.saved_in(rank.world_size) if self.resume else None
        """In how many ranks that checkpoint was saved, where it is to be gone on with; ``batch_size`` is such that a
        step takes the same samples as it did in these."""

    def __repr__(self) -> str:
        return f"<job {self._situation.name}: {self._situation.about}, rank {self.rank} of {self.world_size}>"

    @property
    def optimizer(self) -> Optimizer:
        """An optimizer over the parameters of ``model``; the same one every time."""
        return self._pair()[0]

    @property
    def scheduler(self) -> LRScheduler | ReduceLROnPlateau | None:
        """The scheduler of ``optimizer``, to be stepped once after each of its steps; None where the rate is constant.

        A ReduceLROnPlateau is to be stepped once after each epoch, with the
        validation loss.
        """
        return self._pair()[1]

    def _pair(self) -> tuple[Optimizer, LRScheduler | ReduceLROnPlateau | None]:
        if self._made is None:
            optimizer = self.make_optimizer(self.model.parameters())
            self._made = optimizer, self.make_scheduler(optimizer)
        return self._made

    def make_optimizer(self, parameters: Iterable[Any]) -> Optimizer:
        """The same optimizer over other parameters, for libraries that make a model of their own."""
        return optimizer_of(self._situation, parameters)

    def make_scheduler(self, optimizer: Optimizer) -> LRScheduler | ReduceLROnPlateau | None:
        """The same scheduler over another optimizer."""
        return scheduler_of(self._situation, optimizer, self._scheduled)

    def report(self, **metrics: float) -> None:
        """Say what evaluating ``validation`` has found, after each epoch: ``report(loss=…, accuracy=…)``.

        The names are those of ``metrics``; what is not reported is not judged.
        Raises a TypeError or a ValueError for anything else.
        """
        for name, value in metrics.items():
            if name not in self.metrics:
                raise ValueError(f"job.report has no metric {name!r}: {', '.join(self.metrics)} are judged.")
            self._report(name, float(value))


def _mesh(situation: Situation, rank: CurrentRank) -> DeviceMesh | None:
    match situation.parallelism:
        case "fsdp2":
            return rank.mesh(names=("shard",))
        case "hsdp":
            return rank.mesh(2, -1, names=("replicate", "shard"))
        case "ddp-tp":
            return rank.mesh(2, -1, names=("dp", "tp"))
        case _:
            return None


def optimizer_of(situation: Situation, parameters: Iterable[Any]) -> Optimizer:
    """The optimizer of a situation."""
    match situation.optimizer:
        case "adamw":
            return torch.optim.AdamW(parameters, lr=START["adamw"], weight_decay=0.1)
        case "momentum":
            return torch.optim.SGD(parameters, lr=START["momentum"], momentum=0.5)
        case _:
            return torch.optim.SGD(parameters, lr=START["sgd"])


class Plateau(ReduceLROnPlateau):
    """A ReduceLROnPlateau that tells with what it is stepped; its state is that of any other."""

    def __init__(self, optimizer: Optimizer, notice: Callable[[float], None]) -> None:
        self._notice: Callable[[float], None] | None = notice
        # It counts every evaluation that is not twice as good as the best before as none.
        super().__init__(optimizer, factor=0.5, patience=0, threshold=0.5)

    def step(self, metrics: Any, *args: Any, **kwargs: Any) -> None:  # type: ignore[override]
        if self._notice is not None:
            self._notice(float(metrics))
        super().step(metrics, *args, **kwargs)

    def state_dict(self) -> dict[str, Any]:
        return {name: value for name, value in super().state_dict().items() if name != "_notice"}

    def __getstate__(self) -> dict[str, Any]:
        # One that was saved whole has nobody to tell when it comes back.
        return {**self.__dict__, "_notice": None}


def scheduler_of(
    situation: Situation, optimizer: Optimizer, notice: Callable[[float], None]
) -> LRScheduler | ReduceLROnPlateau | None:
    """The scheduler of a situation."""
    match situation.rates:
        case "steps":
            return LambdaLR(optimizer, decay)
        case "plateau":
            return Plateau(optimizer, notice)
        case _:
            return None
