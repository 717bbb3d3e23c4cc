"""The nouns: what crosses from a test to its ranks and back, as frozen values.

Nothing here imports torch, starts a process or touches a file. Every value is
made of names, numbers and text, so that it can cross a process as plain data.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec
from msgspec.structs import replace

from ddpcheck.vocabulary.clock import clock

Severity = Literal[
    "error",
    "warning",
    "advisory",  # shown where it is asked for, and without effect on verdict and exit code
]
Status = Literal[
    "held",
    "at-risk",  # every finding is a warning
    "violated",
    "not-checked",
]


class Struct(msgspec.Struct, frozen=True, kw_only=True):
    """A plain, immutable value."""


class Gpu(Struct, frozen=True, kw_only=True):
    """A GPU that tests may be given."""

    token: str
    """What CUDA_VISIBLE_DEVICES calls it, as the caller sees GPUs: an index, or the UUID of a GPU or a MIG instance."""
    key: str
    """What names the hardware, under whatever number somebody sees it."""
    name: str = ""
    """The model, as the driver tells it."""
    order: str = ""
    """CUDA_DEVICE_ORDER as it was when GPUs were counted, which an index goes by; empty where it was not set."""


class Machine(Struct, frozen=True, kw_only=True):
    """What a machine has for tests on GPUs."""

    gpus: tuple[Gpu, ...] = ()
    nccl: tuple[int, ...] = ()
    """The version of the NCCL that is loaded, such as (2, 30, 7); empty where it is not known."""
    trouble: str = ""
    """Why torch sees no GPU, as a clause, where that is known."""


class Task(Struct, frozen=True, kw_only=True):
    """A function of ddpcheck's own that ranks call in place of a test, in a session as that test would have it."""

    name: str
    function: str
    """Where it is: ``package.module:name``. It is called with what the test's function was marked to check, and with
    ``given``."""
    given: Any = None


class Plan(Struct, frozen=True, kw_only=True):
    """What one item asks for: which test, in how many ranks, on what, for how long."""

    nodeid: str
    path: str
    """The file that collects the test."""
    world_size: int
    backend: str
    device: str
    timeout: float
    """Seconds that the ranks have from the moment all of them are ready."""
    shared_dir: str
    """``ddp.tmp_path``: one folder for all ranks."""
    own_dirs: str
    """The folder under which each rank keeps its own ``tmp_path``."""
    capture: str
    """pytest's capture method: ``fd``, ``sys``, ``tee-sys`` or ``no``."""
    fresh: bool = False
    """Start interpreters instead of forking."""
    gpus: tuple[Gpu, ...] = ()
    """The GPUs that the ranks see, numbered in this order; before they are leased, those that the test may have."""
    gpus_wanted: int = 0
    """How many of them to lease."""
    simulated: bool = False
    """The GPUs are simulated: nothing is leased, and gloo is in the place of NCCL."""
    nccl_shares_gpu: bool = False
    """Several NCCL ranks are on one GPU, which NCCL has to be told."""
    nccl_variables: dict[str, str] = {}
    """What it is told, as far as the caller has not set it."""
    task: Task | None = None
    """What the ranks do instead of the test."""
    examples: bool = False
    """The test is a property: its ranks run its body for one example after the other."""

    def gpu_of(self, rank: int) -> int:
        """The number of a rank's GPU, its first one where there are several for each."""
        several = len(self.gpus) // self.world_size
        return rank * several if several else rank % len(self.gpus)


class CallSite(Struct, frozen=True, kw_only=True, eq=False, omit_defaults=True):
    """A line of the user's code; the same line is equal to itself, whoever has called its function."""

    file: str
    line: int
    function: str
    caller: CallSite | None = None
    """The line of the user's that has called this one's function, where that is known."""
    through: tuple[str, ...] = ()
    """The installed libraries in which the line's call went on, in this order: ``accelerate: Accelerator.prepare``."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, CallSite) and self._line == other._line

    def __ne__(self, other: object) -> bool:  # that of the base class goes by identity
        return not self == other

    def __hash__(self) -> int:
        return hash(self._line)

    def __str__(self) -> str:
        return f"{self.file}:{self.line} in {self.function}"

    @property
    def _line(self) -> tuple[str, int, str]:
        return self.file, self.line, self.function

    @property
    def alone(self) -> CallSite:
        """The line without those that have led to it."""
        return CallSite(file=self.file, line=self.line, function=self.function)

    @property
    def chain(self) -> tuple[CallSite, ...]:
        """The lines of the user's from the outermost to this one, each the caller of the next."""
        found = [self]
        while found[-1].caller is not None:
            found.append(found[-1].caller)
        return tuple(reversed(found))


class ModelPart(Struct, frozen=True, kw_only=True):
    """The module that a parameter or buffer belongs to, and where it comes from."""

    path: str
    """Its name in the model, such as ``layers.3.attn.q``; empty for the model itself."""
    kind: str
    """Its class."""
    within: str = ""
    """The nearest class of the user's own around it; empty where there is none, or where its own class is one."""
    set_by: CallSite | None = None
    """The line that has set the parameter or buffer in it, where that is known."""
    defined: CallSite | None = None
    """Where it is not: the constructor of the user's class."""


class Finding(Struct, frozen=True, kw_only=True):
    """One broken invariant: what, on which ranks, where, and what to do."""

    ranks: tuple[int, ...]
    subject: str
    """The parameter, sample, loader or call that the finding is about."""
    expected: str
    """What should be, as the end of "expected …"."""
    found: str
    """What is, as the end of "found …"."""
    advice: str
    """What to do, as a sentence."""
    severity: Severity = "error"
    check: str = ""
    """The broken invariant; a judge may leave it out, and then it is that of its folder."""
    rule: str = ""
    """What of the invariant is broken: ``check/rule``; a judge names the rule alone."""
    cause: str = ""
    """The likely cause, as a clause; empty where the finding says it all."""
    step: int | None = None
    where: CallSite | None = None
    count: int = 1
    links: tuple[str, ...] = ()
    """What it concerns, as names that other findings of the same cause share: ``wrapper 0``, ``loader 2``, a path."""
    also: tuple[str, ...] = ()
    """Checks that are broken as its consequence, and are not told one by one."""
    proof: tuple[tuple[int, CallSite], ...] = ()
    """Further lines that show it: the rank, and where it was."""
    module: ModelPart | None = None
    """Where the subject is a parameter or a buffer: the module that it belongs to, as far as that is known."""

    def named(self, check: str) -> Finding:
        """The same with the check's id, where it has none, and its rule's name in full."""
        check = self.check or check
        rule = self.rule if not self.rule or self.rule.startswith(f"{check}/") else f"{check}/{self.rule}"
        return replace(self, check=check, rule=rule)

    @property
    def name(self) -> str:
        """What reports call it: its rule, or its check where it names no rule."""
        return self.rule or self.check

    @property
    def chain(self) -> tuple[CallSite, ...]:
        """The calls from the script's outermost line to the one that it names, which is the last."""
        return self.where.chain if self.where is not None else ()

    @property
    def message(self) -> str:
        """All of it in one line."""
        cause = f" Likely cause: {self.cause}." if self.cause else ""
        return f"Expected {self.expected}. Found {self.found}.{cause}"


class Question(Struct, frozen=True, kw_only=True):
    """What a judge still has to know from every rank before it can decide."""

    ask: str
    """The name of the answer that the observer in the rank can give."""
    about: Any = None


class CheckRun(Struct, frozen=True, kw_only=True):
    """One time that a check was made: held, or violated with findings."""

    check: str
    status: Status
    findings: tuple[Finding, ...] = ()
    where: CallSite | None = None


Phase = Literal["start", "setup", "call", "teardown"]


class PhaseReport(Struct, frozen=True, kw_only=True):
    """What pytest reported for one phase in one rank."""

    phase: Phase
    outcome: Literal["passed", "failed", "skipped"]
    at: float
    """Seconds on the machine's monotonic clock at which the phase ended."""
    data: dict[str, Any]
    """pytest's own serialised report."""
    reaction: bool = False
    """The failure is a lost or timed out peer: a consequence if another rank has a failure of its own."""
    unexpected_pass: bool = False
    """A strict xfail that passed in this rank."""
    verdict: int | None = None
    """The failure is the verdict of this assertion, which all ranks share."""


class Raised(Struct, frozen=True, kw_only=True):
    """The first word of a rank whose test has raised, sent before the traceback is worked out."""

    phase: Phase
    at: float
    text: str
    reaction: bool


class WarningRecord(Struct, frozen=True, kw_only=True):
    """A warning that a rank recorded, in a form that can be raised again elsewhere."""

    message: str
    category: str
    module: str
    file: str
    line: int
    when: str


class Origin(Struct, frozen=True, kw_only=True):
    """What makes one failure another than the next: the exception's class, the line that raised it, and its context."""

    module: str
    name: str
    where: CallSite | None = None
    context: Origin | None = None


ExampleStatus = Literal[
    "passed",
    "failed",
    "invalid",  # rejected, by assume() or by a filter
    "stopped",  # no further choice was to be had
    "skipped",
]


class ExampleEnd(Struct, frozen=True, kw_only=True):
    """How the body of a property ended in one rank, for one example."""

    status: ExampleStatus
    at: float
    text: str = ""
    """The error, or the reason to reject or to skip."""
    where: CallSite | None = None
    """The line that failed, rejected or skipped."""
    origin: Origin | None = None
    reaction: bool = False
    """The failure is a lost peer's."""
    traceback: str = ""
    events: tuple[tuple[str, str | int | float], ...] = ()
    targets: tuple[tuple[str, int | float], ...] = ()
    returned: str = ""
    """What the body returned, where that is not None."""
    spans: tuple[int | bool, ...] = ()
    """What of the structure of interactive draws has followed the last of them."""


EndingKind = Literal[
    "finished",  # the rank ran every phase and said so
    "died",  # a signal, or an exit before the body ended
    "hung",  # still running at the deadline
    "stopped",  # ended by ddpcheck after another rank's failure
    "never-started",  # the rank, or its process group, could not be set up
    "exit",  # the test called pytest.exit()
]


class RankEnding(Struct, frozen=True, kw_only=True):
    """How one rank ended, with everything it said before."""

    rank: int
    kind: EndingKind
    at: float
    reports: tuple[PhaseReport, ...] = ()
    subtests: tuple[PhaseReport, ...] = ()
    """What the test had reported for parts of itself, in this order."""
    body_ended: bool = False
    raised: Raised | None = None
    """What the rank said when it first raised; its report may not have been waited for."""
    verdict: int | None = None
    """The last violated assertion whose verdict this rank was given."""
    exit_code: int | None = None
    signal: int | None = None
    stack: str = ""
    """The Python stack at the moment the rank was stopped, or died."""
    waiting_in: str = ""
    """The assertion in which the rank was waiting for the others."""
    text: str = ""
    """Why the rank never started, or the reason given to ``pytest.exit``."""
    reaction: bool = False
    """The rank could not start for want of another one."""
    output: tuple[tuple[str, str], ...] = ()
    """Captured output (``stdout`` or ``stderr``, and the text) that no report could carry any more."""
    example: ExampleEnd | None = None
    """How the last example of a property ended in this rank, if it did."""
    noted: tuple[str, ...] = ()
    """What the body has noted for the reader of a failing example."""


class Leftover(Struct, frozen=True, kw_only=True):
    """A thread or a process that outlived the body of a test and was ended."""

    kind: Literal["thread", "process"]
    name: str
    rank: int | None = None


class RunRecord(Struct, frozen=True, kw_only=True):
    """Everything that is known about one run of one test: the evidence for its outcome."""

    plan: Plan
    endings: tuple[RankEnding, ...]
    """By rank, 0 to world size - 1, no rank missing."""
    checks: tuple[CheckRun, ...] = ()
    warnings: tuple[WarningRecord, ...] = ()
    leftovers: tuple[Leftover, ...] = ()
    seconds: float = 0.0
    lost: str = ""
    """What became of the process that watched over the ranks, where it did not come to tell how they ended."""


def never_started(plan: Plan, text: str) -> RunRecord:
    """The record of a run in which no rank came to be."""
    now = clock.now()
    endings = tuple(RankEnding(rank=r, kind="never-started", at=now, text=text) for r in range(plan.world_size))
    return RunRecord(plan=plan, endings=endings)
