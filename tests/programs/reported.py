"""What ddpcheck says of every faulty program: ``python -m tests.programs.reported [ID ...]`` writes it beside them."""

from __future__ import annotations

import importlib
import re
import shutil
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import ddpcheck
from ddpcheck.checks.registry import checks, has_part
from ddpcheck.report.finding_text import text_of
from ddpcheck.vocabulary.model import CallSite, Finding
from tests.command import running

OTHER_RANKS = re.compile(r"; ranks? [\d, and]+ (then lost|waited for) .*$", re.MULTILINE)
"""How the others took the end of a rank: some are ended by torchrun before they notice."""

FIXTURES = Path(__file__).parents[2] / "fixtures"


def folder(check: str) -> Path:
    """Where the programs of a check are, and what is reported of the faulty one."""
    return FIXTURES / check.replace("-", "_")


def reported(check: str) -> str:
    """The first finding on the faulty program of a check, by the real command."""
    if not has_part(check, "run"):
        fit = importlib.import_module(f"fixtures.{folder(check).name}.faulty").fit
        (result,) = ddpcheck.check_trainer(fit, checks=[check], world_sizes=[2], on_failure="return")
        return text_of(result.findings[:1]) + "\n"
    return first_finding(by_command(folder(check) / "faulty.py"))


def by_command(program: Path) -> dict[str, Any]:
    """Run a program under ``ddpcheck run``, in interpreters and in a folder of its own; the document it writes."""
    with tempfile.TemporaryDirectory(prefix="ddpcheck-program-") as own:
        shutil.copy(program, own)
        ran = running.run(Path(own), "--standalone", "--nproc-per-node", "2", program.name)
    assert ran.document is not None, ran.err
    return ran.document


def first_finding(document: Mapping[str, Any]) -> str:
    """The first finding of a document, as text, without what differs from run to run."""
    told = document["findings"][0]
    finding = Finding(
        check=told["check"],
        severity=told["severity"],
        ranks=tuple(told["ranks"]),
        subject=told["subject"],
        expected=told["expected"],
        found=told["found"],
        cause=told["cause"] or "",
        advice=told["advice"],
        where=CallSite(**told["where"]) if told["where"] else None,
    )
    return OTHER_RANKS.sub("", text_of([finding])) + "\n"


if __name__ == "__main__":
    for check in sys.argv[1:] or checks():
        text = reported(check)
        (folder(check) / "reported.txt").write_text(text)
        print(text)
