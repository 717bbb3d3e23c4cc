"""A table of all fields of records that hold text, with the rule for each.

Names of the user's are replaced, source texts are emptied, and facts stay.
Fields that hold no text (numbers, digests, flags) are facts.
"""

from __future__ import annotations

import builtins
import collections
import functools
import re
import warnings
from collections.abc import Callable

TORCH_PARTS = frozenset({
    "module",  # DistributedDataParallel and DataParallel hold the wrapped model under this name.
    "_fsdp_wrapped_module",  # FullyShardedDataParallel holds the wrapped module under it.
    "_checkpoint_wrapped_module",  # checkpoint_wrapper() holds the wrapped module under it.
    "_orig_mod",  # torch.compile() holds the compiled module under it.
    "_flat_param",  # FullyShardedDataParallel's one parameter for all that it has flattened.
    "parametrizations",  # torch.nn.utils.parametrize keeps what it has replaced under this name.
})  # fmt: skip
"""Parts of dotted names that torch itself adds."""

MOMENTS = frozenset({
    "exp_avg", "exp_avg_sq", "max_exp_avg_sq", "exp_inf", "momentum_buffer", "square_avg", "acc_delta", "grad_avg",
    "step_size", "mu_product",
})  # fmt: skip
"""State of torch's optimizers for one parameter: keys that stay wherever they stand."""

STATE_KEYS = MOMENTS | {"step", "sum", "prev", "mu", "eta", "ax"}
"""All keys of the state of torch's optimizers. Elsewhere a key such as ``step`` is the user's."""

GROUP_KEYS = frozenset({
    "params", "lr", "initial_lr", "betas", "eps", "weight_decay", "amsgrad", "maximize", "foreach", "capturable",
    "differentiable", "fused", "momentum", "dampening", "nesterov", "alpha", "centered", "rho", "lr_decay",
    "initial_accumulator_value", "lambd", "t0", "etas", "step_sizes", "decoupled_weight_decay",
})  # fmt: skip
"""Keys of the parameter groups of torch's optimizers. Further ones, such as ``step``, are the user's."""

STATE_PARTS = {"state": STATE_KEYS, "param_groups": GROUP_KEYS}
"""The two keys of an optimizer's state_dict(), and which keys below them stay."""

TORCH_FUNCTIONS = frozenset({"forward"})
"""Functions that torch calls by their name: the user cannot choose it."""

_PYTHON_THREADS = re.compile(
    r"\*|MainThread|Thread-\d+|Process-\d+(:\d+)*|Dummy-\d+|thread \d+|pt_autograd_\d+"
    r"|(ThreadPoolExecutor|asyncio|AsyncCheckpoint|QueueFeeder|QueueManager|ExecutorManager)\w*([-_]\d+)*"
)
_PYTHON_THREAD_OF = re.compile(r"(Thread-\d+) \((.+)\)")
"""Python names a thread after its function."""
_MADE_CLASS = re.compile(r"(FSDP|Parametrized)([A-Z]\w*)")
"""Torch makes a class of a module's own: ``FSDPNet`` by fully_shard(), ``ParametrizedNet`` by parametrize."""
_PLACE = re.compile(r"parameter \d+")
"""What a probe calls a parameter that has no name."""
_IN_MESSAGE = re.compile(r"""(?P<before>["'`]|state_dict for |mismatch for )(?P<name>[\w.]+)(?=["'`:,])""")
_FRAME = re.compile(r'(  File "(?P<file>.+)", line \d+, in )(?P<function>.+)')


class Words:
    """The words in the names of a run: they are collected first, and then replaced one to one."""

    def __init__(self) -> None:
        self._found: set[str] = set()
        self._new: dict[str, str] = {}
        self.types: set[str] = set()
        """Classes that come from an installed library."""
        self.files: set[str] = set()
        """Files of the user's."""

    def word(self, text: str) -> str:
        """The new word for one part of a name."""
        if not text or text.isdigit() or _is_special(text):
            return text
        made = _MADE_CLASS.fullmatch(text)
        if made is not None:
            return made[1] + (made[2] if is_type(made[2], self) else self.word(made[2]))
        if self._new:
            return self._new.get(text, text)
        self._found.add(text)
        return text

    def knows(self, text: str) -> bool:
        """Whether some name has this part."""
        made = _MADE_CLASS.fullmatch(text)
        return (made[2] if made is not None else text) in self._new

    def number(self) -> None:
        """Choose the new words, in the reverse of the old order: a judge must not depend on the order of names."""
        width = max(3, len(str(len(self._found))))
        names = [f"qa{number:0{width}}" for number in range(2 * len(self._found) + 1)]
        free = [name for name in names if name not in self._found]
        self._new = dict(zip(sorted(self._found, reverse=True), free, strict=False))
        self._new.setdefault("", "")


def _is_special(text: str) -> bool:
    """``__init__``, ``<module>``: Python's own."""
    return (text.startswith("__") and text.endswith("__")) or (text.startswith("<") and text.endswith(">"))


# --- rules


Action = Callable[[str, Words], str]


def fact(text: str, words: Words) -> str:
    """Keep it: it is no name of the user's."""
    return text


def source(text: str, words: Words) -> str:
    """Empty it: it is text of the program."""
    return ""


def name(text: str, words: Words) -> str:
    """Replace each part of a dotted name, or of the keys that lead to an entry."""
    if _PLACE.fullmatch(text):
        return text
    parts = []
    torchs: frozenset[str] = TORCH_PARTS | STATE_PARTS.keys() | MOMENTS
    for part in text.split("."):
        first, space, key = part.partition(" ")  # a moment is called ``path key``
        new = first if first in torchs or _is_class_part(first, words) else words.word(first)
        parts.append(new + space + state_key(key, words))
        torchs |= STATE_PARTS.get(part, frozenset())
    return ".".join(parts)


def state_key(text: str, words: Words) -> str:
    """Replace a key of an optimizer's state, unless torch has set it."""
    return text if text in STATE_KEYS else words.word(text)


def group_key(text: str, words: Words) -> str:
    """Replace the key in ``0 step``, unless torch has set it; the number of the group stays."""
    number, space, key = text.partition(" ")
    return number + space + (key if key in GROUP_KEYS else words.word(key))


def mesh_dimension(text: str, words: Words) -> str:
    """Replace the name of a dimension of a mesh."""
    return words.word(text)


def kind(text: str, words: Words) -> str:
    """Replace a class, unless it is of torch, Python or a library. A tensor's kind (``float32[3, 4]``) stays."""
    return text if "[" in text or not text.isidentifier() or is_type(text, words) else words.word(text)


def part_class(text: str, words: Words) -> str:
    """Replace the class of a part of a model."""
    return kind(text, words)


def exception(text: str, words: Words) -> str:
    """Replace the class of an exception; ``renaming._raised`` keeps the classes of libraries."""
    return kind(text, words)


def function(text: str, words: Words) -> str:
    """Replace each part of a function's name: ``Net.forward``, ``main.<locals>.save``."""
    parts = text.split(".")
    return ".".join(
        part if part in TORCH_FUNCTIONS or _is_class_part(part, words) else words.word(part) for part in parts
    )


def running_function(text: str, words: Words) -> str:
    """Keep it here: ``renaming._pulse`` replaces it where the function is the user's."""
    return text


def thread(text: str, words: Words) -> str:
    """Replace the name that the user gave a thread or process; in Python's own names, replace the function."""
    if text == "" or _PYTHON_THREADS.fullmatch(text):
        return text
    of = _PYTHON_THREAD_OF.fullmatch(text)
    return f"{of[1]} ({function(of[2], words)})" if of is not None else words.word(text)


def sentence(text: str, words: Words) -> str:
    """Replace both names in ``Net.embed and Net.head``."""
    return " and ".join(name(part, words) for part in text.split(" and "))


def message(text: str, words: Words) -> str:
    """Replace names in an error's message that stand in quotation marks, or after torch's "state_dict for"."""

    def new(found: re.Match[str]) -> str:
        parts = [part for part in found["name"].split(".") if not part.isdigit()]
        known = all(words.knows(part) or part in TORCH_PARTS or _is_class_part(part, words) for part in parts)
        return found["before"] + (name(found["name"], words) if known else found["name"])

    return _IN_MESSAGE.sub(new, text)


def traceback(text: str, words: Words) -> str:
    """Take the source out of a traceback, and replace the user's functions in it."""
    lines = []
    for line in text.splitlines():
        frame = _FRAME.fullmatch(line)
        if frame is not None:
            users = any(frame["file"].endswith(file) for file in words.files)
            lines.append(frame[1] + (function(frame["function"], words) if users else frame["function"]))
        elif not line.startswith("    "):
            lines.append(message(line, words))
    return "\n".join(lines)


FIELDS: dict[str, dict[str, Action]] = {
    # groups and calls: names of torch, of groups by their ranks, dtypes and shapes
    "AfterExchange": {"groups": fact},
    "Call": {"op": fact, "group": fact, "detail": fact, "thread": thread, "kind": fact},
    "Carried": {"of": fact, "group": fact},
    "Filled": {"op": fact, "group": fact},
    "FlightRecord": {"name": fact, "state": fact},
    "Joined": {"token": fact, "backend": fact},
    "JudgedBy": {"address": fact},
    "Outlived": {"op": fact},
    "Stored": {"key": fact},  # judges only compare keys of a store; most are torch's
    # models
    "BuffersHeld": {"names": name},
    "Evaluated": {"kind": kind},
    "Held": {"name": name, "kind": fact, "same_as": name, "owner": kind},
    "Layout": {"ground": fact, "placements": fact},
    "Mesh": {"names": mesh_dimension, "device": fact},
    "Model": {"kind": kind},
    "Parallelised": {"how": fact},
    "Recomputed": {"drew": fact, "apart": fact, "buffers": name},
    "Tensors": {"names": name},
    "Tie": {"first": name, "second": name, "words": sentence},
    # wrappers
    "Attributes": {"values": fact},  # their keys are names: see KEYS
    "Modules": {"parts": fact},
    "Moved": {"function": fact},  # of torch: ``to``, ``double``
    "PartClass": {"name": part_class},
    "Placed": {"hardware": fact, "memory": fact},
    "Replaced": {"name": name},
    "Synced": {"moment": fact, "names": name},
    "Wrapped": {
        "kind": kind, "buffer_owners": kind, "local_buffers": name, "order": name, "ignored": name, "devices": fact,
        "shared": name, "group": fact,
    },
    # optimizers
    "GroupCounts": {"grown": fact},
    "LeftOut": {"names": name, "kinds": fact},
    "Optimizer": {"kind": kind},
    "Contributions": {"how": fact, "calls": fact},
    "Modes": {"modules": name, "parameters": name},
    "ModuleValues": {"modules": name},
    "NotFinite": {"origin": fact, "module": name, "kind": kind},
    "ModelUsed": {"kind": kind, "names": name, "dtypes": fact},
    "Piece": {"path": name, "dtype": fact},
    "Values": {"at_moment": fact},
    "Parameter": {"name": name, "kind": fact, "unseen": kind, "path": name},
    "Scheduled": {"kind": kind},
    "StateOfAnotherWhole": {"keys": state_key},
    "Step": {"state": fact},
    "Unstepped": {"names": name},
    # gradients and losses: operations of autograd, dtypes, groups by their ranks
    "Between": {"became": fact},
    "Norm": {"how": fact, "group": fact, "joint": fact},
    "Part": {"by": fact},
    "PartRead": {"what": fact},
    "Term": {"by": fact, "kind": fact, "factors": fact},
    "LossWeights": {"why": fact},
    # data and random states: a seed is written as its value or a digest of it
    "DatasetValues": {"values": fact},
    "Loader": {"dataset": kind, "sampler": kind, "batch_sampler": kind},
    "Pass": {"seed": fact},
    "PassEnded": {"order": fact},
    "Stream": {"kind": fact, "where": fact, "seed": fact},
    # files and saved state: names of files stay, keys in them are names
    "Entry": {"name": name, "kind": kind, "role": fact, "of": name, "key": state_key},
    "File": {
        "op": fact, "how": fact, "path": fact, "target": fact, "thread": thread, "device": fact, "devices": fact,
        "keys": name, "identity": fact, "optimizers": name,
    },
    "LoadBegan": {"path": fact},
    "SaveBegan": {"path": fact},
    "StateAsked": {"how": fact, "kind": kind, "changed": state_key},
    "StateLoaded": {
        "owner": fact, "kind": kind, "missing": name, "unexpected": name, "itself": name, "missing_kinds": fact,
        "unexpected_kinds": fact,
    },
    "StateRead": {"how": fact, "kind": kind, "path": fact},
    "StateSaved": {"how": fact, "path": fact, "thread": thread},
    # processes
    "Began": {"host": fact, "argv": fact, "folder": fact},
    "Defect": {"text": fact},  # of ddpcheck itself
    "Ended": {"how": fact},
    "Lingering": {"threads": thread, "children": fact},
    "Missing": {"seam": fact, "of": fact},
    "Overlooked": {"what": fact},
    "Pulse": {"doing": running_function, "awaits": fact},  # functions that wait for a device are torch's
    "Raised": {"kind": exception, "message": message, "text": traceback},
    "Site": {"file": fact, "function": function, "text": source, "through": fact, "body": source},
    "Started": {"kind": fact, "name": thread},
    "Stopped": {"why": fact},
}  # fmt: skip
"""The rule for each field with text, by class: of a record, or of a struct that a record holds.

For a dictionary this is the rule for its values; ``KEYS`` has the rule for its keys.
"""

KEYS: dict[str, dict[str, Action]] = {
    "Attributes": {"values": name},
    "DatasetValues": {"values": name},
    "GroupCounts": {"grown": group_key},
    "Modules": {"parts": name},
    "Placed": {"hardware": fact, "memory": name},
    "Step": {"state": state_key},
}
"""The rule for the keys of dictionaries."""


def is_type(text: str, words: Words) -> bool:
    """Whether a class has this name in Python, in torch, or in an installed library that the run has used."""
    return text in words.types or text in _types()


def _is_class_part(text: str, words: Words) -> bool:
    """Whether a part of a name is such a class. ``filter`` and ``device`` are classes, too, but names of the user's."""
    return text.lstrip("_")[:1].isupper() and is_type(text, words)


@functools.cache
def _types() -> frozenset[str]:
    with warnings.catch_warnings():  # torch warns of deprecated names, some of them when they are looked at
        warnings.simplefilter("ignore")
        import torch  # it takes a second: those who only read the tables do without
        import torch.utils.data

        modules = [
            builtins, collections, torch, torch.nn, torch.nn.parallel, torch.optim, torch.optim.lr_scheduler,
            torch.optim.swa_utils, torch.distributed, torch.utils.data, torch.utils.data.dataloader,
        ]  # fmt: skip
        found = {key for module in modules for key, value in vars(module).items() if isinstance(value, type)}
    return frozenset(found | _FURTHER_TYPES)


_FURTHER_TYPES = {
    "DTensor", "DeviceMesh", "FlatParameter", "FSDPModule", "FullyShardedDataParallel", "PipelineStage",
    "PostLocalSGDOptimizer", "ShardedTensor", "ZeroRedundancyOptimizer", "ndarray",
}  # fmt: skip
