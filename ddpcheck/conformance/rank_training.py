"""What each rank does in a situation: it makes a job, has the adapter carry it out, and keeps the record."""

from __future__ import annotations

import math
import os
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import torch

from ddpcheck.conformance import models
from ddpcheck.conformance.datasets import VALIDATION, Curriculum, Samples, Stream
from ddpcheck.conformance.job import Job
from ddpcheck.conformance.losses import METRICS, Loss
from ddpcheck.conformance.mistaken_metrics import mistaken
from ddpcheck.conformance.not_supported import NotSupported
from ddpcheck.conformance.rank_instructions import Order
from ddpcheck.conformance.training_recorder import Recording
from ddpcheck.evidence import training_record
from ddpcheck.probes import all_probes
from ddpcheck.probes.randomness.random_states import put_back, scramble
from ddpcheck.probes.recording import recorder
from ddpcheck.ranks.current_rank import CurrentRank, current
from ddpcheck.trainings.situations import Situation

_LIMIT = 64 << 20
"""Bytes of evidence of one rank; a training of the suite writes some ten thousand."""


def train(fit: Callable[[Job], object], given: Any) -> None:
    """Have ``fit`` carry out one situation in this rank; what it raises is raised."""
    __tracebackhide__ = True
    order = msgspec.convert(given, Order)
    rank = current("the conformance suite")
    situation, folder = order.situation, Path(order.folder)
    last = rank.rank == rank.world_size - 1
    recording = Recording(situation, folder, Path(order.checkpoints), raises=situation.at == "raise" and last)
    if situation.two_nodes:
        _be_on_two_nodes(rank)
    if situation.devices:
        torch.cuda.set_device(0)
    scramble(order.salt * 1000 + rank.rank)
    job = _job(situation, rank, order, recording)
    if situation.at == "train" and rank.world_size > 1:
        _observe(folder / "evidence", rank)
    net = job.model
    assert isinstance(net, models.Net)
    recording.begin(net, rank.rank)
    with warnings.catch_warnings():
        # Whether a library warns is its own affair, also in a session that makes errors of warnings.
        warnings.simplefilter("default")
        try:
            fit(job)
        except NotSupported as error:
            recording.write(training_record.NotSupportedSaid(text=str(error) or "its adapter says so"))
            return
        finally:
            recorder.stop()
    recording.returned()


def _job(situation: Situation, rank: CurrentRank, order: Order, recording: Recording) -> Job:
    number = situation.size.at(rank.world_size)
    samples = Samples(situation, number)
    net = models.make(situation, seed=order.salt * 100 + rank.rank)
    validation = Samples(situation, situation.validation, first=VALIDATION) if situation.validation else None

    def report(name: str, value: float) -> None:
        assert recording.net is not None
        assert validation is not None, "job.report: this job has no validation set"
        expected, others = _metric(name, recording, validation, rank)
        recording.write(training_record.Reported(name=name, value=value, expected=expected, others=others))

    job = Job(
        situation=situation,
        rank=rank,
        model=net,
        dataset=Stream(samples) if situation.iterable else samples,
        validation=validation,
        loss=Loss(situation.loss, recording.notice_loss),
        folder=Path(order.checkpoints),
        report=report,
        scheduled=lambda value: recording.write(training_record.Scheduled(value=value)),
    )
    if situation.sampler:
        job.sampler = Curriculum(number)
    if situation.two_nodes:
        job.local_rank = int(os.environ["LOCAL_RANK"])
    return job


def _metric(name: str, recording: Recording, validation: Samples, rank: CurrentRank) -> tuple[float, dict[str, float]]:
    """A metric of the model as it is now, over the whole validation set; and what it comes to by mistakes."""
    net = recording.latest or recording.net
    assert net is not None
    device = next(net.parameters()).device
    was_training = net.training
    with recording.silence(), recorder.silence(), put_back(), torch.no_grad():
        net.eval()
        pairs = [validation[index] for index in range(len(validation))]
        outputs = net(torch.stack([inputs for inputs, _ in pairs]).to(device)).cpu()
        targets = torch.stack([target for _, target in pairs])
        value = METRICS[name](outputs, targets)
        others = mistaken(METRICS[name], outputs, targets, rank.rank, rank.world_size)
        net.train(was_training)
    return float(value) if math.isfinite(value) else math.nan, others


def _be_on_two_nodes(rank: CurrentRank) -> None:
    """What a launcher says on two machines with half of the ranks each."""
    each = rank.world_size // 2
    node, local = divmod(rank.rank, each)
    rank.local_rank, rank.local_world_size = local, each
    os.environ.update(
        {"LOCAL_RANK": str(local), "LOCAL_WORLD_SIZE": str(each), "GROUP_RANK": str(node), "NODE_RANK": str(node)}
    )
    # Some libraries ask for it before they look at the group that there is.
    os.environ.setdefault("MASTER_ADDR", "127.0.0.1")


def _observe(folder: Path, rank: CurrentRank) -> None:
    """Have all that `ddpcheck run` observes put on record, too: its judges are heard as well."""
    folder.mkdir(exist_ok=True)
    all_probes.start(folder, _LIMIT)
    all_probes.note_group("conformance")
