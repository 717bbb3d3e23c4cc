"""The rank that this process is, if it is one: what the ``ddp`` fixture and assertions speak to."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ddpcheck.checks.missing_seams import unjudgeable
from ddpcheck.ranks import meshes, messages
from ddpcheck.ranks.channel import Channel
from ddpcheck.vocabulary.frame_lines import line_of
from ddpcheck.vocabulary.model import CallSite, Finding, Plan
from ddpcheck.vocabulary.own_code import PACKAGE

if TYPE_CHECKING:
    import torch
    from torch.distributed.device_mesh import DeviceMesh
    from torch.nn.parallel import DistributedDataParallel


class Violation(AssertionError):
    """An invariant of distributed training does not hold; raised on every rank alike."""

    def __init__(self, text: str, findings: tuple[Finding, ...], number: int, at: float) -> None:
        super().__init__(text)
        self.findings, self.number, self.at = findings, number, at


Violation.__module__ = "ddpcheck"  # its public home, and the shorter name in reports


class OutsideRank(RuntimeError):
    """An assertion, or the ddp fixture, was used where there are no ranks."""


class CurrentRank:
    """What a test sees as ``ddp``."""

    def __init__(self, plan: Plan, rank: int, run_dir: str, channel: Channel) -> None:
        self._plan, self._run_dir, self._channel = plan, run_dir, channel
        self.rank: int = rank
        """This process's number in the test, 0 to world_size - 1."""
        self.world_size: int = plan.world_size
        self.local_rank: int = rank
        """The number on this machine; the same as ``rank``, since a test runs on one machine."""
        self.local_world_size: int = plan.world_size
        self.backend: str = plan.backend
        self.tmp_path: Path = Path(plan.shared_dir)
        """One folder shared by all ranks of the test."""

    def __repr__(self) -> str:
        return f"<ddp rank {self.rank} of {self.world_size}, {self.backend} on {self._plan.device}>"

    @property
    def device(self) -> torch.device:
        """The device of this rank: ``cpu``, or its GPU.

        That is the GPU with its local rank; where there are several for each
        rank, the first of its own; where ranks share, ``local_rank % gpus``.
        """
        import torch

        if self._plan.device != "cuda":
            return torch.device("cpu")
        return torch.device("cuda", self._plan.gpu_of(self.local_rank))

    def wrap(self, module: torch.nn.Module, **ddp_kwargs: Any) -> DistributedDataParallel:
        """Move ``module`` to this rank's device and wrap it in DistributedDataParallel.

        Keyword arguments go to DistributedDataParallel; ``device_ids`` is set for a GPU.
        """
        from torch.nn.parallel import DistributedDataParallel

        if self._plan.device == "cuda":
            ddp_kwargs.setdefault("device_ids", [self.device.index])
        return DistributedDataParallel(module.to(self.device), **ddp_kwargs)

    def mesh(self, *shape: int, names: Sequence[str] = ()) -> DeviceMesh:
        """A DeviceMesh over all ranks of the test, in their order: ``ddp.mesh(2, -1, names=("replicate", "shard"))``.

        One dimension may be -1, for as many ranks as are left; without a shape
        it is one dimension of all. Every rank has to call it, as it makes
        groups. Raises a ValueError, the same on every rank, where the shape
        does not fit the world size.
        """
        fitting = meshes.shape_of(shape, names, self.world_size)
        from torch.distributed.device_mesh import init_device_mesh

        return init_device_mesh(self.device.type, fitting, mesh_dim_names=tuple(names) or None)

    # --- for ddpcheck's own assertions

    @property
    def _evidence_dir(self) -> Path:
        return Path(self._run_dir)

    def _judge(
        self,
        check: str,
        title: str,
        facts: Any,
        answers: Mapping[str, Callable[[Any], Any]] | None = None,
        stuck: bool = False,
    ) -> messages.Verdict:
        """Hand in this rank's evidence and wait for the verdict that all ranks get.

        ``stuck``: this rank cannot go on, and what it says is judged also if the others do not come.
        """
        self._channel.send(
            messages.Evidence(
                check=check,
                title=title,
                where=call_site(),
                facts=facts,
                stuck=stuck,
                unjudgeable=unjudgeable(check),
                explains=messages.EVIDENCE in (answers or {}),
            )
        )
        while True:
            match self._channel.receive():
                case messages.Verdict() as verdict:
                    return verdict
                case messages.Ask(question=question):
                    answer = (answers or {})[question.ask]
                    self._channel.send(messages.Answer(facts=answer(question.about)))
                case message:
                    raise AssertionError(f"a rank was sent {message!r} in an assertion")


_current: CurrentRank | None = None


def set_current(rank: CurrentRank) -> None:
    global _current
    _current = rank


def current(what: str) -> CurrentRank:
    """The rank that this process is; raises OutsideRank, naming ``what``, where it is none."""
    if _current is None:
        raise OutsideRank(
            f"{what} was used outside of a rank. Mark the test with @pytest.mark.ddp, "
            f"so that ddpcheck runs it in rank processes."
        )
    return _current


def call_site() -> CallSite:
    """The innermost line outside of this package: the user's call."""
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_code.co_filename.startswith(PACKAGE):
        frame = frame.f_back
    return CallSite(file=frame.f_code.co_filename, line=line_of(frame), function=frame.f_code.co_name)
