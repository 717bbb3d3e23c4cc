"""What a watched process writes down while a script runs: facts, one record after the other.

Nothing here imports torch.
"""

from __future__ import annotations

from ddpcheck.evidence.data import Batch, Inputs, Loader, Pass, PassEnded, Stream
from ddpcheck.evidence.files import File, StateLoaded
from ddpcheck.evidence.framing import FORMAT, FULL, GOING, HEADER, LIMITED, LOST, OVER, RECORDS, Reader, frame
from ddpcheck.evidence.groups import PAIRWISE, RECEIVES, SENDS, Call, Joined, Joining, JudgedBy, Left, Stored
from ddpcheck.evidence.optimizers import UNREAD, Optimizer, Parameter, Scheduled, Spent, Step
from ddpcheck.evidence.processes import (
    Began,
    ChildEnded,
    Defect,
    Ended,
    Launched,
    Lingering,
    Missing,
    Overlooked,
    Pulse,
    Raised,
    Signalled,
    Site,
    Started,
    Stopped,
)
from ddpcheck.evidence.record import ABSENT, NO_SITE, UNSEEN, WIDTH, Record, now
from ddpcheck.evidence.wrappers import Attributes, Evaluated, Moved, Placed, Replaced, Synced, Tensors, Usage, Wrapped

__all__ = [
    "ABSENT",
    "FORMAT",
    "FULL",
    "GOING",
    "HEADER",
    "LIMITED",
    "LOST",
    "NO_SITE",
    "OVER",
    "PAIRWISE",
    "RECEIVES",
    "RECORDS",
    "SENDS",
    "UNREAD",
    "UNSEEN",
    "WIDTH",
    "Attributes",
    "Batch",
    "Began",
    "Call",
    "ChildEnded",
    "Defect",
    "Ended",
    "Evaluated",
    "File",
    "Inputs",
    "Joined",
    "Joining",
    "JudgedBy",
    "Launched",
    "Left",
    "Lingering",
    "Loader",
    "Missing",
    "Moved",
    "Optimizer",
    "Overlooked",
    "Parameter",
    "Pass",
    "PassEnded",
    "Placed",
    "Pulse",
    "Raised",
    "Reader",
    "Record",
    "Replaced",
    "Scheduled",
    "Signalled",
    "Site",
    "Spent",
    "Started",
    "StateLoaded",
    "Step",
    "Stopped",
    "Stored",
    "Stream",
    "Synced",
    "Tensors",
    "Usage",
    "Wrapped",
    "frame",
    "now",
]
