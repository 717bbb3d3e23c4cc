"""The command ``ddpcheck``: run a script, list the checks, explain one, examine the machine.

What a command needs is imported once its arguments are known to be good: mistakes are answered at once.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence

USAGE = """usage: ddpcheck run [options of torchrun and ddpcheck] SCRIPT [arguments of the script]
       ddpcheck judge [FOLDER]         the report of a run whose command was killed, or of kept evidence
       ddpcheck checks
       ddpcheck explain ID
       ddpcheck doctor [--json FILE] [--seams] [--timeout SECONDS]
       ddpcheck schema run | tests     the JSON schema of the reports of run --json, of pytest --ddp-report
       ddpcheck demo [FOLDER]          a small training with a mistake, and what is reported of it
       ddpcheck --version

Knows whether distributed training is right: runs a training script in torchrun's place and says which
invariants held, which were broken, on which rank, by which line. `ddpcheck COMMAND --help` has more."""

CHECKS_USAGE = """usage: ddpcheck checks

Lists every invariant: its id, when it holds, and its rules. Those with a star take a second run to compare with."""

EXPLAIN_USAGE = """usage: ddpcheck explain ID

Says what an invariant is, what breaks it, and how to fix that.

  ddpcheck explain gradient-sync               a check: `ddpcheck checks` lists them
  ddpcheck explain ID/RULE                     one of its rules
  ddpcheck explain gradient-oracle:clipping    one of the conformance suite"""

_WRONG_USAGE = 2
_HELP = ("-h", "--help")


def main(arguments: Sequence[str] | None = None) -> int:
    """Do what the command line says; the exit code."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # it was closed before we were started
            setattr(sys, name, open(os.devnull, "w"))  # noqa: SIM115
    given = list(sys.argv[1:] if arguments is None else arguments)
    command, rest = (given[0], given[1:]) if given else ("", [])
    if command == "help":
        command, rest = (rest[0], ["--help"]) if rest else ("--help", [])
    if command in _HELP:
        print(USAGE)
        return 0
    if command == "--version":
        from ddpcheck.vocabulary.versions import installed

        print(f"ddpcheck {installed()['ddpcheck']}")
        return 0
    commands: dict[str, Callable[[list[str]], int]] = {
        "run": _run,
        "judge": _judge,
        "checks": _checks,
        "explain": _explain,
        "doctor": _doctor,
        "schema": _schema,
        "demo": _demo,
    }
    if command in commands:
        return commands[command](rest)
    wrong = f"there is no command {command!r}" if command else "no command was given"
    if os.path.isfile(command):
        wrong += f": ddpcheck run {command} runs a script"
    return _wrong("ddpcheck", f"{wrong}; the commands are run, judge, checks, explain, doctor, schema and demo")


def _run(arguments: list[str]) -> int:
    def run() -> int:
        from ddpcheck.run.command_line import WrongUsage, read

        try:
            line = read(arguments)
            from ddpcheck.run.options import options_of

            options = options_of(line)
        except WrongUsage as error:
            return _wrong("ddpcheck run", str(error))
        from ddpcheck.run.command import run

        return run(options)

    return _ours(run)


def _judge(arguments: list[str]) -> int:
    def judge() -> int:
        from ddpcheck.run.judge_arguments import WrongUsage, read

        try:
            given = read(arguments)
            from ddpcheck.run.left_evidence import judge

            return judge(given)
        except WrongUsage as error:
            return _wrong("ddpcheck judge", str(error))

    return _ours(judge)


def _doctor(arguments: list[str]) -> int:
    def doctor() -> int:
        from ddpcheck.doctor.arguments import read

        options = read(arguments)
        from ddpcheck.doctor.command import doctor

        return doctor(options)

    return _ours(doctor)


def _demo(arguments: list[str]) -> int:
    def demo() -> int:
        from ddpcheck.run.demo import demo

        return demo(arguments, _run)

    return _ours(demo)


def _ours(body: Callable[[], int]) -> int:
    """Do it; what fails is ours, and said to be."""
    try:
        return body()
    except (KeyboardInterrupt, SystemExit):
        raise
    except Exception:
        import traceback

        traceback.print_exc()
        print("ddpcheck itself failed; please report this, with the lines above", file=sys.stderr)
        return 4


def _wrong(command: str, sentence: str) -> int:
    print(f"{command}: {sentence}", file=sys.stderr)
    return _WRONG_USAGE


def _checks(arguments: list[str]) -> int:
    if arguments[:1] and arguments[0] in _HELP:
        print(CHECKS_USAGE)
        return 0
    if arguments:
        return _wrong(
            "ddpcheck checks",
            f"it takes no arguments, not {arguments[0]!r}; ddpcheck explain ID explains a check",
        )
    from ddpcheck.report.explain import show_checks

    show_checks(sys.stdout)
    return 0


def _schema(arguments: list[str]) -> int:
    from ddpcheck.report.published_schemas import NAMES, schema_text

    known = " or ".join(f"{name} ({report})" for name, report in NAMES.items())
    if any(one in _HELP for one in arguments):
        print(f"usage: ddpcheck schema NAME\n\nPrints the JSON schema of a report: {known}.")
        return 0
    if len(arguments) != 1 or arguments[0] not in NAMES:
        return _wrong("ddpcheck schema", f"name one report: {known}")
    print(schema_text(arguments[0]), end="")
    return 0


def _explain(arguments: list[str]) -> int:
    if any(one in _HELP for one in arguments):
        print(EXPLAIN_USAGE)
        return 0
    option = next((one for one in arguments if one.startswith("-")), None)
    if option is not None:
        return _wrong("ddpcheck explain", f"there is no option {option}; name one check, as in `explain gradient-sync`")
    if len(arguments) != 1:
        return _wrong("ddpcheck explain", "name one check, as in `ddpcheck explain gradient-sync`")
    from ddpcheck.checks.registry import every_check, every_rule
    from ddpcheck.report.explanations import unknown

    (name,) = arguments
    if name in every_check() or name in every_rule():
        from ddpcheck.report.explain import show_check

        show_check(name, sys.stdout)
        return 0
    from ddpcheck.conformance.item_descriptions import check_of, described, nearest

    check = check_of(name)
    if check is None:
        meant = nearest(name) if ":" in name else None
        hint = f"there is no check {name!r}: did you mean {meant}?" if meant is not None else unknown(name)
        return _wrong("ddpcheck explain", hint)
    from ddpcheck.report.explain import show_check, show_text

    if check.id in every_check():
        show_check(check.id, sys.stdout)
    show_text(described(check), sys.stdout)
    return 0


if __name__ == "__main__":
    sys.exit(main())
