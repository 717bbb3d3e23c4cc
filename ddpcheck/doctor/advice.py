"""What a failure has said: the lines of it that help, and what to do about it."""

from __future__ import annotations

import re

from ddpcheck.ranks.stacks import FATAL

MOST_LINES = 12
"""Lines of a failure that are shown, of each kind; all are in the JSON."""

PRINTED = "\nwhat the ranks had printed:\n"
"""Stands in a failure's text before that."""

_STACK = re.compile(r"Current thread 0x.*\(most recent call first\):\n((?: *File .*\n?)*)")
_CALL = re.compile(r'^ *File "(.+)", line (\d+) in (.+)$', re.MULTILINE)
_MACHINERY = re.compile(r"^<|/importlib/|/_pytest/|/pluggy/")


def gist(text: str) -> str:
    """The lines of a failure that say the most.

    Its first, and those that pytest marks as the error; or those of a crash,
    which are the last words before it, and where it was; or else the last.
    """
    text, _, printed = text.partition(PRINTED)
    said, fatal, dump = text.partition(FATAL)
    first, *lines = _lines(text) or [""]
    errors = [line[1:].strip() for line in lines if line.startswith("E ")]
    if errors:
        return "\n".join([first, *errors[:MOST_LINES]])
    if fatal:
        words = _shortened(_lines(said) + _lines(printed))
        return "\n".join([*words, fatal + dump.partition("\n")[0], *innermost(dump)])
    return "\n".join(_shortened([first, *lines]))


def innermost(dump: str) -> list[str]:
    """The last calls of a process that crashed, without those of pytest and of the import machinery."""
    stack = _STACK.search(dump)
    calls = [f"{file}:{line} in {function}" for file, line, function in _CALL.findall(stack[1])] if stack else []
    return [call for call in calls if not _MACHINERY.search(call)][:MOST_LINES]


def innermost_of_last(log: str) -> list[str]:
    """The same of the last crash that a log tells of."""
    return innermost(log.rpartition(FATAL)[2])


def _lines(text: str) -> list[str]:
    return [line.rstrip() for line in text.splitlines() if line.strip()]


def _shortened(lines: list[str]) -> list[str]:
    """The first, and the last ones."""
    left_out = ["…"] if len(lines) > MOST_LINES + 1 else []
    return [*lines[:1], *left_out, *lines[1:][-MOST_LINES:]]


_KNOWN = (
    ("No module named 'torch'", "Install torch in this environment: ddpcheck looks at the one that is there."),
    (
        "No module named 'torch[.]|module 'torch' has no attribute|cannot import name .* 'torch'",
        "What is imported as torch is another thing of that name, or lacks parts of it. If it hides the torch that you "
        "mean, rename it, or take its folder off the import path (PYTHONPATH); else reinstall torch.",
    ),
    ("No module named", "A package is missing: install ddpcheck with its dependencies in this environment."),
    (
        "from that of one process",
        "The reduction itself is wrong: reinstall torch, and report it there if that is no help.",
    ),
    (
        "-sync violated",
        "The ranks did not agree after a reduction: reinstall torch, and report it there if that is no help.",
    ),
    ("-broadcast violated", "The ranks did not agree after a broadcast: reinstall torch, and report it there."),
    (
        "SIGKILL",
        "Something outside ended it, mostly for want of memory: free some, or raise the container's limit.",
    ),
    ("SIGBUS|Fatal.*: Bus error", "Shared memory ran out: enlarge /dev/shm (docker run --shm-size=1g)."),
    (
        "SIGILL|Fatal.*: Illegal instruction",
        "This build of torch uses instructions that the processor lacks: install another build.",
    ),
    ("SIGSEGV|Fatal.*: Segmentation fault", "Native code crashed: install another build or version of torch."),
    (
        "SIGABRT|Fatal.*: Aborted",
        "Native code gave up: above is what it printed, if it did, and where it was. Install another build or version "
        "of torch, or of the library that is named there.",
    ),
    (
        "import torch\n|from torch[.\\w]* import",
        "torch cannot be imported here: reinstall it, in a build that fits this machine.",
    ),
    ("Too many open files", "Raise the number of file descriptors: ulimit -n 4096."),
    ("CUDA", "Compare the driver with what this build of torch needs (nvidia-smi), and see who else uses the GPU."),
    ("NCCL", "Run with NCCL_DEBUG=INFO to see what NCCL tried."),
    ("did not end within.*importing torch", "A slow disk needs longer to read torch: ddpcheck doctor --timeout 300."),
    (
        "did not end within",
        "See where it stood, above; a slow machine needs longer: ddpcheck doctor --timeout 300.",
    ),
    (
        "timed out",
        "See where the ranks stood, above; look for a firewall or a sandbox that closes the loopback interface.",
    ),
    ("ould not start", "See above why no process group came to be; ranks meet over the loopback interface and a file."),
    (
        "Connection",
        "See that nothing closes the loopback interface: a firewall, a sandbox, a container without network.",
    ),
    ("ddpcheck itself failed", "Please report this, with the output of `ddpcheck doctor --json FILE`."),
)
"""A pattern within one line, and the advice; the first that is found counts."""


def advice_for(text: str, torch: str = "") -> str:
    """What to do, in a sentence or two; with the file ``torch``, if one is found, where that may be at fault."""
    for pattern, advice in _KNOWN:
        if re.search(pattern, text):
            return f"{advice} The torch that is imported here is {torch}." if torch and "torch" in advice else advice
    return (
        "See the whole text in the file of `ddpcheck doctor --json FILE`; report it if it is not the machine's fault."
    )
