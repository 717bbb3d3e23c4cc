"""Messages between processes: typed, plain data.

What comes over a connection is decoded into the message types below and nothing
else, so that a foreign or damaged frame is an error and never an object with
behaviour.
"""

from __future__ import annotations

from typing import Any

import msgspec

from ddpcheck.vocabulary import model


class Message(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Base of all messages; the class name is the tag on the wire."""


# --- pytest process -> zygote


class Hello(Message, frozen=True, kw_only=True):
    """How the pytest session was set up, so that the zygote can set up the same."""

    options: dict[str, Any]
    args: list[str]
    sys_path: list[str]
    cwd: str
    workerinput: dict[str, Any]
    runtime_dir: str
    interruptible: bool = True
    """SIGINT is not ignored, as it is in what a shell starts in the background."""
    plan: model.Plan | None = None
    """Only for a rank that starts as a fresh interpreter."""
    rank: int = 0


class Collect(Message, frozen=True, kw_only=True):
    """Import this test module now, so that it is ready when its tests are."""

    path: str


class Run(Message, frozen=True, kw_only=True):
    plan: model.Plan


class Abort(Message, frozen=True, kw_only=True):
    """Stop the ranks that run; the session was interrupted."""


class Stop(Message, frozen=True, kw_only=True):
    """Finish the session and leave."""


class Example(Message, frozen=True, kw_only=True):
    """Run a property's body for this example, in all ranks."""

    choices: list[Any]
    """What the example's arguments are drawn from; see properties/choices.py."""
    explicit: int | None = None
    """The number of the explicit example that it is."""
    final: bool = False
    """Its failure is for the reader: tell it as a test's own, and end."""
    verbose: bool = False
    """Say what the body notes also if it does not fail."""


class Given(Message, frozen=True, kw_only=True):
    """What was asked for in the midst of an example; nothing, where the example is to stop there."""

    choice: Any = None
    stop: bool = False


class Finish(Message, frozen=True, kw_only=True):
    """There are no more examples."""


# --- zygote -> pytest process


class Ready(Message, frozen=True, kw_only=True):
    """The zygote can start ranks."""

    cannot_fork: str = ""
    """Why ranks of this session must start as fresh interpreters; empty if they may be forked."""
    machine: model.Machine = model.Machine()


class Spoiled(Message, frozen=True, kw_only=True):
    """Importing this module made the zygote unfit to fork from."""

    path: str
    reason: str


class Waiting(Message, frozen=True, kw_only=True):
    """The test that is to run waits for GPUs; what for, as a sentence without its end."""

    text: str


class Watching(Message, frozen=True, kw_only=True):
    """The ranks of a test are there, and are watched."""

    until: float
    """The moment, on the machine's monotonic clock, at which they have had their time."""
    begun: bool
    """All have joined: from now on the test itself runs."""
    run_dir: str
    pids: tuple[int, ...]
    """By rank."""


class Ran(Message, frozen=True, kw_only=True):
    record: model.RunRecord


class AllFollowing(Message, frozen=True, kw_only=True):
    """All ranks wait for the first example."""


class ExampleOver(Message, frozen=True, kw_only=True):
    """Every rank has ended the example, none of them by failing, and all wait for the next."""

    ends: tuple[model.ExampleEnd, ...]
    """By rank."""
    checks: tuple[model.CheckRun, ...] = ()
    noted: tuple[tuple[str, ...], ...] = ()
    """By rank."""


class Broken(Message, frozen=True, kw_only=True):
    """ddpcheck itself failed."""

    text: str


# --- keeper -> pytest process


class Halted(Message, frozen=True, kw_only=True):
    """The zygote was stopped by this signal; with none, it goes on."""

    signal: int | None


# --- rank -> supervisor


class Joined(Message, frozen=True, kw_only=True):
    """The rank's process group exists."""


class CouldNotStart(Message, frozen=True, kw_only=True):
    text: str
    reaction: bool = False


EVIDENCE = "evidence"
"""What a rank may be asked for where an assertion is violated: what it has kept that explains it."""


class Evidence(Message, frozen=True, kw_only=True):
    """The rank has come to an assertion and waits for its verdict."""

    check: str
    title: str
    """The assertion's name, as the user wrote it."""
    where: model.CallSite
    facts: Any
    stuck: bool = False
    """The rank cannot go on; others may be waiting for it in a collective, and then never come here."""
    unjudgeable: str = ""
    """Why nothing can be made of the facts, as a clause: what they rest on is missing in this rank."""
    explains: bool = False
    """The rank has an answer to EVIDENCE."""


class Answer(Message, frozen=True, kw_only=True):
    facts: Any


class Reported(Message, frozen=True, kw_only=True):
    report: model.PhaseReport
    part: bool = False
    """It is of a part of the test alone, such as a subtest, and the test goes on."""


class Failing(Message, frozen=True, kw_only=True):
    """The test has raised in this rank; the report follows."""

    raised: model.Raised


class BodyEnded(Message, frozen=True, kw_only=True):
    """The test's body has returned; the rank keeps its group until all have."""


class Warned(Message, frozen=True, kw_only=True):
    warning: model.WarningRecord


class Done(Message, frozen=True, kw_only=True):
    leftovers: tuple[model.Leftover, ...] = ()
    leaving: tuple[str, int | None] | None = None
    """What the test has called ``pytest.exit`` with."""


class Following(Message, frozen=True, kw_only=True):
    """The rank has come to a property's body, and waits for examples."""


class Asked(Message, frozen=True, kw_only=True):
    """The body needs a choice that the example does not have yet; passed on once all ranks have asked for the same."""

    ask: bytes
    """Which choice; see properties/choices.py. Ranks that ask for the same have the same bytes."""
    where: model.CallSite


class Noted(Message, frozen=True, kw_only=True):
    """What the body has noted, at once: the rank may not live to tell it later."""

    text: str
    begun: bool = False
    """It is only about to happen, and is told once more when it has; then this does not count."""


class ExampleEnded(Message, frozen=True, kw_only=True):
    end: model.ExampleEnd


# --- supervisor -> rank


class Diverged(Message, frozen=True, kw_only=True):
    """The ranks have not all asked for the same."""

    asked: dict[int, Asked]
    """By rank; the others had ended the example."""


class Go(Message, frozen=True, kw_only=True):
    """All ranks have joined: run the test."""


class Ask(Message, frozen=True, kw_only=True):
    question: model.Question


class Verdict(Message, frozen=True, kw_only=True):
    findings: tuple[model.Finding, ...]
    number: int
    at: float

    @property
    def violated(self) -> bool:
        return any(finding.severity == "error" for finding in self.findings)


class Release(Message, frozen=True, kw_only=True):
    """Every body has ended: tear down."""


class Leave(Message, frozen=True, kw_only=True):
    """Every teardown has ended: nobody needs this rank's connections any more."""


AnyMessage = (
    Hello
    | Collect
    | Run
    | Abort
    | Stop
    | Ready
    | Spoiled
    | Waiting
    | Watching
    | Halted
    | Ran
    | Broken
    | Joined
    | CouldNotStart
    | Evidence
    | Answer
    | Reported
    | Failing
    | BodyEnded
    | Warned
    | Done
    | Go
    | Ask
    | Verdict
    | Release
    | Leave
    | Example
    | Given
    | Finish
    | AllFollowing
    | ExampleOver
    | Following
    | Asked
    | Noted
    | ExampleEnded
    | Diverged
)

decode = msgspec.msgpack.Decoder(AnyMessage).decode
