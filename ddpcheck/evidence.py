"""What a watched process writes down while a script runs: facts, one record after the other, in a file of its own.

A file is a header, then frames: four bytes of length (little-endian), and one
record as msgpack. A process that is killed leaves at most one torn frame, the
last; everything before it counts. Nothing here imports torch.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any, Literal

import msgspec

HEADER = b"ddpcheck-evidence-1"
"""What a file begins with; one byte more says how recording goes."""
GOING, FULL, OVER = b".", b"F", b"O"
"""It goes on; the disk was full (or another error of writing ended it); it ended as it should."""

NO_SITE = 0
"""The site of what no line of the user's code has called."""


class Record(msgspec.Struct, frozen=True, array_like=True, tag=True, kw_only=True):
    """A fact of one process. ``n`` counts the process's records, written or not; ``at`` is its monotonic clock."""

    n: int
    at: float


# --- the process


class Began(Record, frozen=True, kw_only=True):
    """An interpreter in which torch was imported."""

    pid: int
    parent: int
    host: str
    node: int
    """GROUP_RANK of torchrun; 0 without it."""
    argv: list[str]
    folder: str
    """Its working directory."""
    wall: float
    """Seconds since the epoch at ``at``, to put the clocks of several hosts beside each other."""
    rank: int | None = None
    """RANK of the environment, which a launcher sets; a rank is who joins, and this is for those who never did."""
    worker_of: int | None = None
    """The pid whose DataLoader started this process to load samples."""


class Site(Record, frozen=True, kw_only=True):
    """A line of the user's code; other records name it by its number, 1 and up."""

    id: int
    file: str
    """Relative to the working directory if it lies below it."""
    line: int
    function: str
    text: str
    """The line itself."""


class Raised(Record, frozen=True, kw_only=True):
    """An exception that ended the program (or the function given to a child process)."""

    kind: str
    message: str
    text: str
    """The whole traceback."""
    site: int
    """The innermost line of the user's."""
    lost_peer: bool
    """It only tells that another rank was gone or did not come."""
    code: int = 1


class Defect(Record, frozen=True, kw_only=True):
    """ddpcheck itself has failed in this process; the program went on without that look."""

    text: str


class Pulse(Record, frozen=True, kw_only=True):
    """Where the main thread is: written every half second while it is elsewhere than before, or waits."""

    site: int
    doing: str
    """The innermost function, a library's included."""
    pending: int | None
    """The ``n`` of the Call in which it waits."""
    since: float | None = None
    """The monotonic clock when it began to wait."""


class Ended(Record, frozen=True, kw_only=True):
    """The last word of a process that came to its end by itself."""

    how: Literal["exit", "os._exit", "exception"]
    code: int | None
    site: int
    groups: int
    """Process groups that were not destroyed."""
    threads: list[str]
    """Non-daemon threads that were still running."""
    children: list[str]
    """Child processes that were still running (DataLoader workers not among them)."""


class Started(Record, frozen=True, kw_only=True):
    """A thread that is not a daemon, or a child process, was started."""

    kind: Literal["thread", "process"]
    name: str
    pid: int | None
    site: int
    library: bool = False
    """An installed library did it, on behalf of the user's line."""


class Lingering(Record, frozen=True, kw_only=True):
    """The script's own code is over in the main thread: what still runs then, and will be waited for."""

    threads: list[str]
    """Those that are no daemons."""
    children: list[str]
    """Processes that nobody ends by himself: ``pid: command``."""


class ChildEnded(Record, frozen=True, kw_only=True):
    """A process saw its child end: who, and how."""

    pid: int
    code: int | None
    signal: int | None


# --- process groups and collectives


class Joined(Record, frozen=True, kw_only=True):
    """The process has become a rank: init_process_group has returned."""

    rank: int
    world_size: int
    token: str
    """The same for all ranks of one default group, and for no other."""
    backend: str
    local_rank: int | None
    local_world_size: int | None
    site: int
    init_method: str = ""
    timeout: float | None = None


class JudgedBy(Record, frozen=True, kw_only=True):
    """Rank 0 is on another node: its ddpcheck takes this node's evidence, at this address."""

    address: str
    """Host, port and key."""


class Joining(Record, frozen=True, kw_only=True):
    """init_process_group was called, and has not returned yet."""

    rank: int | None
    world_size: int | None
    site: int


class Left(Record, frozen=True, kw_only=True):
    """destroy_process_group of the default group."""

    site: int


class Call(Record, frozen=True, kw_only=True):
    """A collective (or a step of DDP that communicates) was called; it is done when the rank goes on."""

    op: str
    """``all_reduce``, ``barrier``, ``send`` …; ``ddp-construct``, ``ddp-buffers``, ``ddp-gradients``."""
    group: str
    """``world``, or the ranks and a number: ``0,2#1``."""
    number: int
    """The calls of this process on this group so far."""
    detail: str
    """What has to be equal on all ranks: dtype and shape, the reduction, the source; the wrapper for ``ddp-…``."""
    site: int
    peer: int | None = None
    """The source or destination, as a global rank: of broadcast, reduce, scatter, gather, send, recv."""
    waits: bool = True
    """False for async_op=True."""
    joined: bool = False
    """Inside of ``with model.join():``; such calls have no number of their own."""
    of: int | None = None
    """Of a ``wait``: the ``n`` of the asynchronous call that it waits for."""
    thread: str = ""
    """The thread, where it was not the main one."""


class Groups(Record, frozen=True, kw_only=True):
    """A further group of this process."""

    group: str
    ranks: list[int]
    site: int


# --- DistributedDataParallel


class Tensors(msgspec.Struct, frozen=True, array_like=True, kw_only=True):
    """Tensors by name, side by side: equal bytes have equal digests, eight bytes each; zeros for one that is absent."""

    names: list[str] = []
    kinds: list[str] = []
    """dtype and shape: ``float32[10, 4]``."""
    digests: bytes = b""


class Wrapped(Record, frozen=True, kw_only=True):
    """A DDP wrapper was built."""

    wrapper: int
    """The wrappers of this process, counted."""
    kind: str
    """The class of the module inside."""
    site: int
    parameters: Tensors
    buffers: Tensors
    buffer_owners: list[str]
    """The class of the module that owns each buffer."""
    local_buffers: list[str]
    """Buffers that are not persistent."""
    order: list[str]
    """The names of the parameters, in the order in which DDP broadcasts and reduces them."""
    ignored: list[str]
    """Parameters and buffers that the user told DDP to ignore."""
    broadcast_buffers: bool
    static_graph: bool
    find_unused: bool
    devices: list[str]
    """Of the module's parameters."""
    device_ids: list[int] | None
    shared: list[str]
    """Parameters in memory that other processes may write to."""
    attributes: dict[str, str]
    """Plain numbers and text among the modules' own attributes."""
    group: str = "world"


class Placed(Record, frozen=True, kw_only=True):
    """Where the parameters of a wrapped module really are: written where they are on GPUs, or in shared memory."""

    wrapper: int
    hardware: dict[str, str]
    """By device: what names the GPU itself, under whatever number this process sees it."""
    memory: dict[str, str]
    """By parameter in shared memory: the device and inode of that memory."""


class Moved(Record, frozen=True, kw_only=True):
    """A wrapped module was converted after it had been wrapped: ``.to()``, ``.double()``, ``.cpu()``."""

    wrapper: int
    site: int
    function: str


class Attributes(Record, frozen=True, kw_only=True):
    """Plain numbers and text among a wrapped module's attributes, at the first step of an optimizer with it."""

    wrapper: int
    values: dict[str, str]
    site: int


class Replaced(Record, frozen=True, kw_only=True):
    """A parameter was registered in a module that was wrapped already."""

    name: str
    site: int


class Usage(msgspec.Struct, frozen=True, array_like=True, kw_only=True):
    """What became of one wrapper between two steps of an optimizer that updates its parameters."""

    wrapper: int
    forwards: int = 0
    """Through the wrapper, with gradients enabled."""
    armed: int = 0
    """Of these, the ones that made the next backward reduce."""
    reached: int = 0
    """Armed forwards whose output a backward came through."""
    backwards: int = 0
    """backward() calls while it was armed."""
    same_line: int = 0
    """The most of these by one line."""
    backward_site: int = NO_SITE
    forward_site: int = NO_SITE
    bare_site: int = NO_SITE
    """Where ``.module`` was last taken with gradients enabled."""
    no_sync: int = 0
    """Times that no_sync() was entered."""
    no_sync_forwards: int = 0
    no_sync_site: int = NO_SITE
    sync_flag_site: int = NO_SITE
    """The backward() at which ``require_backward_grad_sync`` was another than at its forward, outside of no_sync()."""
    after: bytes = b""
    """Digests of the wrapper's gradients when the last backward() had ended, in the wrapper's order; may be empty."""
    last_armed: bool = True
    """The last of the forwards was one of the armed ones."""


class Synced(Record, frozen=True, kw_only=True):
    """The buffers of a wrapper at two moments: when DDP had broadcast them, or when a step had been made."""

    wrapper: int
    moment: Literal["broadcast", "step", "evaluation"]
    number: int
    """How many there were of this moment."""
    digests: bytes
    site: int
    names: list[str] = []
    """The buffers, where they are not the ones that the wrapper had when it was built."""


class Evaluated(Record, frozen=True, kw_only=True):
    """A module was called by itself, without gradients: its state at that moment."""

    kind: str
    number: int
    """Optimizer steps that the process had made."""
    parameters: Tensors
    buffers: Tensors
    site: int
    wrapper: int | None = None
    """The wrapper that its parameters belong to, where there is one."""


# --- optimizers


class Parameter(msgspec.Struct, frozen=True, array_like=True, kw_only=True):
    """One parameter that an optimizer updates."""

    name: str
    kind: str
    wrapper: int | None
    """The wrapper that holds it."""
    reduced: bool
    """The wrapper's reducer knows this very object."""
    ignored: bool = False
    shared: bool = False
    in_module: bool = True
    """Some module still has it as a parameter."""


class Optimizer(Record, frozen=True, kw_only=True):
    """An optimizer at its first step, or when its parameters have changed since."""

    optimizer: int
    kind: str
    site: int
    parameters: list[Parameter]
    sharded: bool
    """ZeroRedundancyOptimizer: its state differs between ranks on purpose."""
    values: bytes
    """Digests of the parameters on entry to this step."""
    inner: bool = False
    """It was stepped inside of a module's forward."""


class Step(Record, frozen=True, kw_only=True):
    """One step of an optimizer."""

    optimizer: int
    number: int
    """Steps of this optimizer, from 0."""
    site: int
    gradients: bytes
    """On entry; empty where this step was not looked at."""
    parameters: bytes
    """On exit."""
    whole: bool
    """The digests are of all elements, and not of a part of each tensor."""
    state: str
    """A digest of the optimizer's state; empty where it was not looked at."""
    rates: list[float]
    """Learning rates, group by group."""
    scale: float | None
    """The gradient scaler's factor."""
    usage: list[Usage]
    backwards: int
    """backward() calls since the last step of any optimizer."""
    backward_site: int
    nonfinite: list[int]
    """Gradients that are not finite, by place; looked at only with whole digests."""
    collectives: int
    """Collectives of the user's own since the last step."""
    region: int = 0
    """How often ``with model.join():`` was entered or left before: with uneven inputs, steps are counted from there."""
    place: int = 0
    """Steps of this optimizer since then."""


class Scheduled(Record, frozen=True, kw_only=True):
    """A learning-rate scheduler was stepped several times in a row, with no step of its optimizer between."""

    kind: str
    times: int
    site: int
    bursts: int
    """How many rows of this length there were."""


# --- data


class Loader(Record, frozen=True, kw_only=True):
    """A DataLoader, at its construction."""

    loader: int
    site: int
    dataset: str
    size: int | None
    stream: bool
    sampler: str
    """The class of the sampler that decides what this rank gets."""
    distributed: bool
    """It knows a rank and a number of replicas."""
    rank: int | None
    replicas: int | None
    shuffle: bool | None
    seed: int | None
    sampler_drops: bool
    batch_size: int | None
    """None where a batch sampler of the user's own decides."""
    drop_last: bool
    workers: int
    dataset_id: int
    """The same for loaders of one dataset object."""
    sampler_site: int = NO_SITE
    repeats: bool = False
    """The sampler gives a sample more than once on purpose: it draws with replacement."""
    dataset_rank: int | None = None
    """What the dataset takes for its rank (or shard), if it has an attribute that says so."""
    dataset_replicas: int | None = None
    batch_sampler: str = ""
    """The class of a batch sampler of the user's own."""


class Pass(Record, frozen=True, kw_only=True):
    """An iteration over a loader begins."""

    loader: int
    number: int
    site: int
    epoch: int | None
    """What set_epoch has said, of a sampler that has an epoch."""
    base_seed: int | None
    """What the workers' random states are made from."""
    grad: bool
    joined: bool = False
    seeded: int = NO_SITE
    """Where the stream that the base seed was drawn from was last seeded."""
    seed: str = ""
    """What with."""


class Batch(Record, frozen=True, kw_only=True):
    """A batch was handed to the script."""

    loader: int
    pass_: int
    number: int
    indices: bytes
    """int64 each; empty where the places are no indices."""
    prints: bytes
    """A fingerprint of each sample, eight bytes each."""
    labels: bytes
    """A fingerprint of each sample's last part; empty where a sample has one part."""
    backwards: int = 0
    """backward() calls since the first batch of the pass."""
    samples: int = 0
    """How many there are; fewer are told of, the same ones on all ranks, where evidence or time was short."""


class PassEnded(Record, frozen=True, kw_only=True):
    """An iteration over a loader is over."""

    loader: int
    number: int
    batches: int
    samples: int
    exhausted: bool
    order: str
    """A digest of the indices in their order; empty where there are none."""
    backwards: int
    """backward() calls between its batches."""


class Inputs(Record, frozen=True, kw_only=True):
    """What went into a wrapper's forward in training."""

    wrapper: int
    number: int
    digest: bytes
    site: int


class Stream(Record, frozen=True, kw_only=True):
    """A random state at a moment where it was consumed (or might have been)."""

    kind: Literal["torch", "numpy", "python", "cuda"]
    where: Literal["forward", "fetch"]
    number: int
    """Which forward, or which fetch of the pass."""
    state: bytes
    """A digest of the state before."""
    consumed: bool
    site: int
    loader: int | None = None
    pass_: int | None = None
    worker: int | None = None
    wrapper: int | None = None
    """Of a forward."""
    base_seed: int | None = None
    """What the loader has made the worker's states from."""
    seeded: int = NO_SITE
    """The line that last set this state, if it was not torch's own."""
    seed: str = ""
    """What to."""


# --- files


class File(Record, frozen=True, kw_only=True):
    """A file was written, read, renamed, removed or asked for."""

    op: Literal["write", "read", "rename", "remove", "query", "join"]
    """``join``: the main thread has waited for ``thread``, or (``*``) for one that is not known."""
    how: str
    """``torch.save``, ``open``, ``os.replace``, ``os.path.exists`` …"""
    path: str
    """Absolute and resolved."""
    target: str
    """Where it was renamed to."""
    site: int
    ended: int
    """The ``n`` when it was done."""
    existed: bool
    """Before a write: the path was there; of a query: its answer."""
    thread: str
    """The thread, where it was not the main one."""
    device: str = ""
    """Of a load: ``map_location`` as given, empty for none."""
    devices: list[str] = []
    """Where the loaded tensors lie (saved tensors, of a save)."""
    keys: list[str] = []
    """Top-level keys of what was saved or loaded."""
    identity: str = ""
    """Device and inode, to know a file under two names."""
    locked: bool = False
    """The process held a lock on some file (flock, lockf)."""
    library: bool = False
    """An installed library did it, on behalf of the user's line."""
    optimizers: list[str] = []
    """Of what was saved or loaded: the keys under which there is the state of an optimizer, and not an empty one."""


class StateLoaded(Record, frozen=True, kw_only=True):
    """load_state_dict of a module, an optimizer or a scheduler."""

    owner: Literal["module", "optimizer", "scheduler", "scaler"]
    kind: str
    missing: list[str]
    unexpected: list[str]
    total: int
    strict: bool
    site: int
    digest: bytes = b""
    wrapped: bool = False
    """It went into a module that a DDP wrapper holds already."""
    wrapper: int | None = None
    """That wrapper."""


RECORDS = (
    Began | Defect | Site | Raised | Pulse | Ended | Started | Lingering | ChildEnded | Joined | JudgedBy | Joining
    | Left | Call | Groups | Wrapped | Placed | Moved | Attributes | Replaced | Synced | Evaluated | Optimizer | Step
    | Scheduled | Loader | Pass | Batch | PassEnded | Inputs | Stream | File | StateLoaded
)  # fmt: skip

_encoder = msgspec.msgpack.Encoder()
_decoder: msgspec.msgpack.Decoder[Any] = msgspec.msgpack.Decoder(RECORDS)


def frame(record: Record) -> bytes:
    """A record as it is written."""
    body = _encoder.encode(record)
    return len(body).to_bytes(4, "little") + body


class Reader:
    """The records of one file, as far as it has been written; ask again for more."""

    def __init__(self) -> None:
        self._rest = b""
        self.status = GOING

    def feed(self, data: bytes) -> Iterator[Any]:
        """Yield the records that are complete with this further piece of the file (the header taken off)."""
        data = self._rest + data
        start = 0
        while len(data) - start >= 4:
            end = start + 4 + int.from_bytes(data[start : start + 4], "little")
            if end > len(data):
                break
            yield _decoder.decode(data[start + 4 : end])
            start = end
        self._rest = data[start:]

    @property
    def torn(self) -> bool:
        """The file ends in the middle of a record."""
        return bool(self._rest)


def now() -> float:
    """The clock of ``at``: the same for all processes of a machine."""
    return time.monotonic()
