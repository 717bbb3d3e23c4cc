"""The surroundings in which a program is to end under ``ddpcheck run`` as it does under torchrun, and what it does."""

from __future__ import annotations

import os
import resource
import signal
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).parents[2]
HOSTILE = ROOT / "fixtures" / "hostile"
PROGRAM = HOSTILE / "program.py"
CASES = ROOT / "fixtures" / "cases" / "run"
REFUSED = ROOT / "fixtures" / "cases" / "hostile"


@dataclass(frozen=True)
class Surrounding:
    """How a program is started, and which."""

    name: str
    program: tuple[str | bytes | Path, ...] = (PROGRAM, "nothing")
    """What stands after the launcher's options."""
    options: tuple[str, ...] = ()
    """Of the launcher."""
    environment: Mapping[str, str | None] = field(default_factory=dict)
    """What is set; None for what is taken away."""
    before: Callable[[], object] | None = None
    """What the launcher's process does to itself before it is the launcher."""
    folder: str | bytes | None = None
    """The working directory, below the test's own unless it begins with a slash."""
    stdin: bytes | None = b""
    """What comes from a pipe; None for a closed one."""
    prepare: Callable[[Path], object] | None = None
    """What there is in the working directory."""
    ranks: int = 1
    in_order: bool = True
    """Its lines of output come in one order; where all ranks print, they do not."""
    by_chance: tuple[bytes, ...] = ()
    """Files whose content is another each time."""


def limited(what: int, soft: int) -> Callable[[], None]:
    def limit() -> None:
        resource.setrlimit(what, (soft, resource.getrlimit(what)[1]))

    return limit


def behaving(name: str, **more: object) -> Surrounding:
    return Surrounding(name.replace("_", "-"), (PROGRAM, name), **more)  # type: ignore[arg-type]


def _own_startup(folder: Path) -> None:
    (folder / "startup").mkdir()
    for name in ("sitecustomize", "usercustomize"):
        (folder / "startup" / f"{name}.py").write_text(
            f"import os\nos.environ['SEEN_{name}'] = str(os.getppid() > 0)\n"
        )
    (folder / "startup" / "begin.py").write_text("print('never run by a script')\n")


def _package(folder: Path) -> None:
    (folder / "package").mkdir()
    (folder / "package" / "__init__.py").write_text("print('package')\n")
    (folder / "package" / "__main__.py").write_text(
        "import runpy, sys\nsys.argv[0] = 'main'\n"
        f"runpy.run_path({os.fspath(PROGRAM)!r}, run_name='__main__')\n"
    )  # fmt: skip


def _zipped(folder: Path) -> None:
    import zipapp

    (folder / "source").mkdir()
    (folder / "source" / "__main__.py").write_text(PROGRAM.read_text())
    os.utime(folder / "source" / "__main__.py", (10**9, 10**9))  # the archive has its time
    zipapp.create_archive(folder / "source", folder / "program.pyz")


TELLING = (PROGRAM, "tell_of_itself", "--", "caf\u00e9", "")

AROUND = (
    Surrounding("plain", ranks=2),
    Surrounding("stdin-from-a-pipe", (PROGRAM, "read_standard_input"), stdin=b"caf\xc3\xa9\nsecond line"),
    Surrounding("stdin-closed", TELLING, stdin=None, before=lambda: os.close(0)),
    Surrounding("stdout-closed", before=lambda: os.close(1)),
    Surrounding("stderr-closed", TELLING, before=lambda: os.close(2)),
    Surrounding("interrupts-ignored", (PROGRAM, "handle_signals"),
                before=lambda: signal.signal(signal.SIGINT, signal.SIG_IGN)),
    Surrounding("ascii-locale", TELLING, environment={"LC_ALL": "POSIX", "LANG": None, "PYTHONUTF8": "0",
                                                      "PYTHONCOERCECLOCALE": "0"}),
    Surrounding("latin-1", (PROGRAM, "print_bytes"), environment={"PYTHONIOENCODING": "latin-1"}),
    Surrounding("folder-that-nobody-writes-to", TELLING, folder="/proc"),
    Surrounding("folder-with-spaces", TELLING, folder="a folder; with $(odd) na\u00efve 'names'"),
    Surrounding("folder-not-utf-8", TELLING, folder=b"caf\xe9"),
    Surrounding("no-temporary-folder", environment={"TMPDIR": "/nonexistent"}),
    Surrounding("temporary-folder-that-nobody-writes-to", environment={"TMPDIR": "/proc"}),
    Surrounding("no-home", environment={"HOME": None, "USER": None, "LOGNAME": None}),
    Surrounding("umask-077", before=lambda: os.umask(0o077)),
    Surrounding("umask-000", before=lambda: os.umask(0)),
    Surrounding("few-descriptors", before=limited(resource.RLIMIT_NOFILE, 64)),
    Surrounding("small-files", before=limited(resource.RLIMIT_FSIZE, 30_000)),
    Surrounding("small-stack", before=limited(resource.RLIMIT_STACK, 1 << 20)),
    Surrounding("no-byte-code", TELLING, environment={"PYTHONDONTWRITEBYTECODE": "1", "PYTHONPYCACHEPREFIX": "cache"}),
    Surrounding("startup-of-ones-own", TELLING, prepare=_own_startup,
                environment={"PYTHONPATH": f"startup::{ROOT}", "PYTHONSTARTUP": "startup/begin.py"}),
    Surrounding("warnings-are-errors", TELLING, environment={"PYTHONWARNINGS": "error"}),
    Surrounding("development-mode", TELLING, environment={"PYTHONDEVMODE": "1", "PYTHONWARNINGS": "ignore"}),
    Surrounding("fault-handler", (PROGRAM, "crash"), environment={"PYTHONFAULTHANDLER": "1"}),
    Surrounding("hash-seed", TELLING, environment={"PYTHONHASHSEED": "0"}),
    Surrounding("safe-path", TELLING, environment={"PYTHONSAFEPATH": "1"}),
    Surrounding("optimized", TELLING, environment={"PYTHONOPTIMIZE": "2"}),
    Surrounding("no-path", environment={"PATH": None}),
    Surrounding("odd-ranks", environment={"GROUP_RANK": "abc", "RANK": "-1", "WORLD_SIZE": "x", "LOCAL_RANK": ""}),
    Surrounding("large-environment", environment={f"VARIABLE_{number}": "x" * 100 for number in range(2000)}),
    Surrounding("low-priority", before=lambda: os.nice(10)),
    Surrounding("module", ("-m", "package", "tell_of_itself"), prepare=_package),
    Surrounding("zipped", ("program.pyz", "nothing"), prepare=_zipped),
    Surrounding("no-python", ("--no-python", os.sys.executable, PROGRAM, "nothing")),  # type: ignore[attr-defined]
    Surrounding("logs", options=("--log-dir", "logs", "--redirects", "3", "--tee", "3"), ranks=2),
    Surrounding("restarts", (PROGRAM, "fail_once"), options=("--max-restarts", "1"), ranks=2),
)  # fmt: skip
"""What is around a program."""

BEHAVING = (
    behaving("tell_of_itself"),
    behaving("print_much"),
    behaving("print_bytes"),
    behaving("fork"),
    behaving("start_processes"),
    behaving("load_by_forks"),
    behaving("load_by_spawned"),
    behaving("load_by_a_server"),
    behaving("leave_a_daemon"),
    behaving("leave_the_session"),
    behaving("execute_itself"),
    behaving("go_elsewhere"),
    behaving("handle_signals"),
    behaving("trace"),
    behaving("hook"),
    behaving("raise_an_error", ranks=2),
    behaving("say_goodbye"),
    behaving("leave_at_once", ranks=2),
    behaving("leave_with_a_large_code"),
    behaving("be_killed", ranks=2),
    behaving("crash"),
    behaving("close_descriptors"),
    behaving("close_standard_streams"),
    behaving("take_warnings_for_errors"),
    behaving("warn"),
    behaving("look_at_torch"),
    behaving("set_defaults"),
    behaving("replace_the_library"),
    behaving("run_in_threads"),
    behaving("fill_the_disk"),
    behaving("use_up_descriptors"),
    behaving("collect_garbage"),
)
"""What programs do to the process that they run in."""


def case(name: str, *arguments: str | bytes, **more: object) -> Surrounding:
    return Surrounding(f"case-{name}", (CASES / f"{name}.py", *arguments), **{"ranks": 2, "in_order": False, **more})  # type: ignore[arg-type]


OF_CASES = (
    case("dtensor_optimizer", ranks=1),
    case("tensor_parallel"),
    case("tensor_parallel_by_hand"),
    case("fsdp1"),
    case("fsdp2"),
    case("pipeline_equal_stages"),
    case("expert_parallel"),
    case("ignored_parameters"),
    case("local_sgd"),
    case("diloco"),
    case("truncate_only"),
    case("reused_descriptor", "metrics", by_chance=(b"metrics.0.db", b"metrics.1.db")),
    case("surrogate_file", ranks=1),
    case("surrogate_error", ranks=1),
    case("undecodable_argument", b"caf\xe9", ranks=1),
    case("garbage_evidence", environment={"DDPCHECK_EVIDENCE": "/nonexistent"}),  # where nobody has any
    case("warning_only"),
    case("peeked_loader", "64", "8", "4", "1"),
    case("double_step"),
    case("two_evaluated_models", "--epochs", "1"),
    case("ema_buffers"),
    case("fsdp2_faults", "rankseed"),
)
"""Programs on which ddpcheck was wrong; what is said of them is another test's business."""


def allow(folder: Path) -> None:
    """Let fmode.py use what this torch uses beside what it knows."""
    names = ("_record_function_enter_new", "_record_function_exit._RecordFunction", "_set_grad_enabled")
    (folder / "allow.txt").write_text("\n".join(names))


COUNTING = (
    Surrounding("allowed-functions", (REFUSED / "fmode.py",), prepare=allow, ranks=2),
    Surrounding("exotic-uses", (REFUSED / "exotic.py",), ranks=2),
    Surrounding("counted-uses", (HOSTILE / "counted_uses.py", "FD"), ranks=2),
    Surrounding("counted-uses-without-modes", (HOSTILE / "counted_uses.py", ""), ranks=2),
)
"""Programs that tell what their modes and their classes of tensors have seen."""


def _at_once() -> None:
    os.close(0)
    os.umask(0o077)
    os.nice(5)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    limited(resource.RLIMIT_NOFILE, 128)()


AT_ONCE = Surrounding(
    "much-at-once", (PROGRAM, "much_at_once", b"caf\xe9"), stdin=None, before=_at_once, folder=b"a caf\xe9",
    prepare=_own_startup, environment={
        "HOME": None, "PATH": None, "TMPDIR": "/nonexistent", "LC_ALL": "POSIX", "PYTHONUTF8": "0", "GROUP_RANK": "abc",
        "PYTHONCOERCECLOCALE": "0", "PYTHONPATH": f"startup::{ROOT}", "PYTHONFAULTHANDLER": "1",
    },
)  # fmt: skip
"""What most of these have in common with each other: a program that minds none of it."""

ALL = (AT_ONCE, *AROUND, *BEHAVING, *OF_CASES, *COUNTING)
