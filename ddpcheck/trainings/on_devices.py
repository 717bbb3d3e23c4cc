"""A training on simulated devices, of which a library may want more than is simulated."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ddpcheck.judging.world import Judged
from ddpcheck.trainings.suite_row import Row, watched
from ddpcheck.trainings.trained_situation import Trained
from ddpcheck.vocabulary.model import Finding
from ddpcheck.vocabulary.wording import ranks_text

NOT_SIMULATED = "does not simulate this"
"""Words of what simulated devices raise for what they are not."""


def on_devices(check: str) -> Row:
    """The row of a check that is judged on simulated devices, too."""
    return Row(f"{check}:devices", ("resumed-devices",), _judge(check), world_sizes=(2,), also_failed=True)


def _judge(check: str) -> Callable[[Sequence[Trained]], Judged]:
    """What the judges of a script's run say of it."""
    said = watched(check)

    def judge(trained: Sequence[Trained]) -> Judged:
        if not trained[0].failed:
            return _on_the_cpu(trained[0]) or said(trained)
        if NOT_SIMULATED in trained[0].text:
            return Judged(checked=0, skipped_because="it uses of a GPU what simulated devices have not")
        return Judged(checked=1, findings=(trained[0].failure(),))

    return judge


def _on_the_cpu(trained: Trained) -> Judged | None:
    """What is said of ranks that have left their device alone: of all of them, that there is nothing to judge."""
    devices = [{micro.forward.device for micro in trace.micros} for trace in trained.traces]
    ranks = [rank for rank in trained.ranks if devices[rank] == {"cpu"}]
    if not ranks:
        return None
    if len(ranks) == trained.world_size:
        told = "model and batches stayed on the CPU: put them on job.device"
        return Judged(checked=0, skipped_because=told)
    finding = Finding(
        rule="model-on-cpu",
        ranks=tuple(ranks),
        subject="job.device",
        expected="each rank to compute on job.device",
        found=f"model and batches on the CPU on {ranks_text(ranks)}, with {trained.situation.about}",
        advice="Put model and batches on job.device, on every rank.",
    )
    return Judged(checked=1, findings=(finding,))
