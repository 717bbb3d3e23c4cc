"""Failures that torch's users meet again and again: what lies behind the message, and what to do."""

from __future__ import annotations

import re
from collections.abc import Iterator

from ddpcheck import evidence as ev
from ddpcheck.judging.world import Rank
from ddpcheck.vocabulary.model import CallSite, Struct


class Explained(Struct, frozen=True, kw_only=True):
    """What is known of a message."""

    cause: str
    advice: str
    found: str = ""
    """What else is known of it, as a clause."""
    where: CallSite | None = None
    """The line to change, where that is not the one that raised."""
    proof: tuple[CallSite, ...] = ()


MARKED_TWICE = r"[Mm]arked? (as ready twice|a variable ready (only once|twice))|ready only once"
FIND_UNUSED = "Pass find_unused_parameters=True"

_KNOWN: tuple[tuple[str, str, str], ...] = (
    (
        r"Expected to have finished reduction in the prior iteration",
        "some parameters had no part in the loss of the step before: a branch of the forward left them out, or an "
        "output was not used",
        f"{FIND_UNUSED}, or let every parameter have a part in the loss on every rank.",
    ),
    (
        MARKED_TWICE,
        "a parameter's gradient was complete more than once in one backward: it was used outside of the forward as "
        "well, or in reentrant checkpointing (use_reentrant=True), whose parts of the backward are backwards of their "
        "own",
        "Checkpoint with use_reentrant=False, or pass static_graph=True where the graph is the same in every step.",
    ),
    (
        r"expect_autograd_hooks_ INTERNAL ASSERT FAILED",
        "a backward that was to reduce met a reducer that no forward had prepared, as it does where static_graph=True "
        "has a first step that begins within no_sync()",
        "Leave static_graph=True out, or have the first forward and backward outside of no_sync().",
    ),
    (
        r"EADDRINUSE|[Aa]ddress already in use",
        "another process listens at the port already: a second job, or one that has not ended",
        "Let torchrun choose a free port (--standalone, or --rdzv-endpoint=localhost:0); give no fixed MASTER_PORT.",
    ),
    (
        r"(?s)device_ids and output_device arguments only work with.*module parameters \{device\(type='cpu'\)\}",
        "device_ids was given for a module that is on the CPU",
        "Move the module to its device before the wrap; on the CPU, leave device_ids out.",
    ),
    (
        r"device_ids and output_device arguments only work with",
        "device_ids was given for a module that lies on several devices",
        "Pass device_ids only for a module on one GPU.",
    ),
    (
        r"device_ids can only be None or contain a single",
        "device_ids names more than one device",
        "Give each rank one device, device_ids=[local_rank], or leave it out.",
    ),
    (
        r"no attribute 'set_epoch'",
        "set_epoch was called on a sampler that has none: the loader has no DistributedSampler",
        "Call set_epoch only where the sampler has it, or give the loader a DistributedSampler.",
    ),
    (
        r"(?s)Error\(s\) in loading state_dict.*['\"]module\.",
        "the keys have the prefix 'module.' on one side only: the state of the wrapper went into a bare module, or the "
        "other way round",
        "Save and load `ddp.module.state_dict()`, or strip the prefix at the load.",
    ),
    (
        r"expects same model across all ranks|appears not to match (the )?(sizes|strides|shapes)",
        "the ranks build models of different parameters",
        "Build the same model on every rank: nothing of it may depend on the rank, or on data that differ.",
    ),
    (
        r"modified by an inplace operation",
        "a tensor that the backward needs was changed after the forward; with DDP often its broadcast of buffers in a "
        "second forward before the backward",
        "Join the inputs to one forward, or pass broadcast_buffers=False; otherwise look for operations in place.",
    ),
    (
        r"invalid device ordinal",
        "the device was chosen by the global rank, and this machine has fewer",
        "Choose the device by LOCAL_RANK.",
    ),
    (
        r"[Oo]ut of memory",
        "this rank ran out of memory: it has larger samples, or shares its device",
        "Bound the size of a batch by its elements, and make sure that every rank has a device of its own.",
    ),
    (
        r"Default process group has not been initialized",
        "a collective was called before init_process_group, or after destroy_process_group",
        "Call init_process_group first on every rank, and destroy the group last.",
    ),
    (
        r"Weights only load failed",
        "torch.load, of files that it does not trust, takes tensors, numbers, text and containers of them alone",
        "Pass weights_only=False on to it, or save what the message names as such (a numpy array as a list).",
    ),
    (
        r"Numpy is not available",
        "torch's collectives of objects, such as all_gather_object, need numpy, which torch does not install",
        "Install numpy, and let your package require it where it gathers objects.",
    ),
    (
        r"PytorchStreamReader failed|failed finding central directory|unexpected EOF|Ran out of input|"
        r"invalid magic number|pickle data was truncated|not a ZIP archive",
        "the file is not whole: its writer was interrupted, or has not finished",
        "Write to a temporary file and rename it when it is complete, and let the others wait for it at a barrier.",
    ),
)

_PORT_TAKEN = re.compile(r"EADDRINUSE|[Aa]ddress already in use")
_TIMEOUT = re.compile(r"[Tt]imed out|[Tt]imeout")


def explain(raised: ev.Raised) -> Explained | None:
    """What is known of an exception, if anything is."""
    return explain_words(f"{raised.kind}: {raised.message}")


def explain_words(text: str) -> Explained | None:
    """What is known of an exception with these words."""
    for pattern, cause, advice in _KNOWN:
        if re.search(pattern, text):
            return Explained(cause=cause, advice=advice)
    return None


def is_port_taken(raised: ev.Raised) -> bool:
    """Whether a store could not have its port."""
    return _PORT_TAKEN.search(raised.message) is not None


def is_timeout(raised: ev.Raised | None) -> bool:
    """Whether a rank has given up waiting."""
    return raised is not None and _TIMEOUT.search(raised.message) is not None


def users_lines(text: str, rank: Rank) -> Iterator[CallSite]:
    """The lines of a traceback that are on record as the user's, the innermost first."""
    sites = {(site.file, site.line): site for site in rank.process.of(ev.Site)}
    for file, line in reversed(re.findall(r'File "([^"]+)", line (\d+)', text)):
        for (known, number), site in sites.items():
            if number == int(line) and file.endswith(known):
                yield CallSite(file=site.file, line=site.line, function=site.function)
