"""Findings, verdicts and rules written by hand, for the tests of what is accepted."""

from __future__ import annotations

from ddpcheck.acceptance.baseline import Entry
from ddpcheck.acceptance.ignore_entries import Ignore
from ddpcheck.evidence import Site
from ddpcheck.judging.world import Judged
from ddpcheck.verdict.verdict import conclude
from ddpcheck.vocabulary.model import CallSite, Finding

CODE = {5: "optimizer.step()", 9: "torch.save(state, path)", 14: "optimizer.step()"}
"""The lines of the program that the findings are about."""


def finding(check="gradient-sync", severity="error", line=5, function="train", file="train.py", **more):
    """A finding at a line; at none, where that is None."""
    where = CallSite(file=file, line=line, function=function) if line is not None else None
    given = {"ranks": (0,), "subject": "net.weight", "expected": "this", "found": "that", "advice": "Fix it."}
    return Finding(check=check, severity=severity, where=where, **{**given, **more})


WARNING = finding("checkpoint-atomic-save", "warning", 9, subject="file last.pt")


def verdict(
    folder, *findings, checked=("gradient-sync", "parameter-sync", "checkpoint-atomic-save"), lines=None, **more
):
    """What a run with these findings comes to, with the text of the lines as they were."""
    from msgspec.structs import replace

    judged = {check: Judged(check=check, checked=3) for check in checked}
    for one in findings:
        before = judged.get(one.check, Judged(check=one.check, checked=1))
        judged[one.check] = replace(before, findings=(*before.findings, one))
    concluded = conclude([judged], **more)
    texts = {f"train.py:{line}": text for line, text in (CODE if lines is None else lines).items()}
    return replace(concluded, folder=str(folder), lines=texts)


def sites(file="train.py", function="train", lines=None):
    """The lines that the run has met."""
    return [
        Site(n=number, at=0.0, id=number, file=file, line=line, function=function, text=text)
        for number, (line, text) in enumerate((CODE if lines is None else lines).items(), 1)
    ]


def ignore(check="gradient-sync", file="train.py", reason="it is meant", **more):
    return Ignore(number=1, check=check, file=file, reason=reason, **more)


def entry(**more):
    """An entry of a baseline, for `finding()`."""
    given = {"check": "gradient-sync", "severity": "error", "file": "train.py", "function": "train",
             "code": "optimizer.step()", "subject": "net.weight", "count": 1, "reason": "known"}  # fmt: skip
    return Entry(**{**given, **more})
