"""The command ``ddpcheck``: run a script, list the checks, explain one, examine the machine."""

from __future__ import annotations

import sys
from collections.abc import Sequence

USAGE = """usage: ddpcheck run [options of torchrun and ddpcheck] SCRIPT [arguments of the script]
       ddpcheck judge [FOLDER]         the report of a run whose command was killed, or of kept evidence
       ddpcheck checks
       ddpcheck explain ID             a check, or one of the conformance suite: gradient-oracle:clipping
       ddpcheck doctor [--json FILE] [--timeout SECONDS]
       ddpcheck schema run | tests     the JSON schema of the reports of run --json, of pytest --ddp-report

Knows whether distributed training is right: runs a training script in torchrun's place and says which
invariants held, which were broken, on which rank, by which line. `ddpcheck run --help` lists the options."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Do what the command line says; the exit code."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    command, rest = (given[0], given[1:]) if given else ("", [])
    if command in ("-h", "--help", "help"):
        print(USAGE)
        return 0
    if command == "--version":
        from ddpcheck.vocabulary.versions import installed

        print(f"ddpcheck {installed()['ddpcheck']}")
        return 0
    if command in ("run", "judge", "doctor"):
        return _long(command, rest)
    if command == "checks":
        return _checks()
    if command == "explain":
        return _explain(rest)
    if command == "schema":
        return _schema(rest)
    wrong = f"there is no command {command!r}" if command else "no command was given"
    print(f"ddpcheck: {wrong}; the commands are run, judge, checks, explain, doctor and schema", file=sys.stderr)
    return 2


def _long(command: str, arguments: list[str]) -> int:
    try:
        if command == "doctor":
            from ddpcheck.doctor.command import doctor

            return doctor(arguments)
        if command == "judge":
            from ddpcheck.run.left_evidence import judge

            return judge(arguments)
        from ddpcheck.run.command import run

        return run(arguments)
    except (KeyboardInterrupt, SystemExit):
        raise
    except Exception:
        import traceback

        traceback.print_exc()
        print("ddpcheck itself failed; please report this, with the lines above", file=sys.stderr)
        return 4


def _checks() -> int:
    from ddpcheck.report.explain import show_checks

    show_checks(sys.stdout)
    return 0


def _schema(arguments: list[str]) -> int:
    from ddpcheck.report.published_schemas import NAMES, schema_text

    if len(arguments) != 1 or arguments[0] not in NAMES:
        known = " or ".join(f"{name} ({report})" for name, report in NAMES.items())
        print(f"ddpcheck schema: name one report: {known}", file=sys.stderr)
        return 2
    print(schema_text(arguments[0]), end="")
    return 0


def _explain(arguments: list[str]) -> int:
    from ddpcheck.checks.registry import every_check
    from ddpcheck.report.explain import show_check, show_text
    from ddpcheck.report.explanations import unknown

    if len(arguments) != 1:
        print("ddpcheck explain: name one check, as in `ddpcheck explain gradient-sync`", file=sys.stderr)
        return 2
    (name,) = arguments
    if name in every_check():
        show_check(name, sys.stdout)
        return 0
    from ddpcheck.conformance.item_descriptions import check_of, described, nearest

    check = check_of(name)
    if check is None:
        meant = nearest(name) if ":" in name else None
        told = f"there is no check {name!r}: did you mean {meant}?" if meant is not None else unknown(name)
        print(f"ddpcheck explain: {told}", file=sys.stderr)
        return 2
    if check.id in every_check():
        show_check(check.id, sys.stdout)
    show_text(described(check), sys.stdout)
    return 0


if __name__ == "__main__":
    sys.exit(main())
