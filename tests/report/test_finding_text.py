"""Findings as text: what stands in a failure, word for word."""

from __future__ import annotations

from msgspec.structs import replace

from ddpcheck.report.finding_text import text_of
from ddpcheck.vocabulary.model import CallSite, Finding

FINDING = Finding(
    check="gradient-sync",
    severity="error",
    ranks=(1,),
    subject="net2.weight",
    expected="all ranks to hold the same gradients",
    found="1 of 4 gradients to differ",
    cause="the model is within no_sync()",
    advice="Leave no_sync() first.",
    where=CallSite(file="train.py", line=41, function="train"),
)


def test_a_finding_says_what_where_why_and_what_to_do():
    """A finding has a line for the check and its ranks, and one for each thing to know."""
    assert text_of([FINDING]) == (
        "gradient-sync violated: net2.weight (rank 1)\n"
        "  where     train.py:41 in train\n"
        "  expected  all ranks to hold the same gradients\n"
        "  found     1 of 4 gradients to differ\n"
        "  cause     likely: the model is within no_sync()\n"
        "  fix       Leave no_sync() first."
    )


def test_what_is_not_known_has_no_line():
    """Without a place or a cause there is no line for it."""
    assert text_of([replace(FINDING, where=None, cause="", ranks=(0, 1, 2))]) == (
        "gradient-sync violated: net2.weight (ranks 0-2)\n"
        "  expected  all ranks to hold the same gradients\n"
        "  found     1 of 4 gradients to differ\n"
        "  fix       Leave no_sync() first."
    )


def test_a_warning_is_at_risk():
    """A finding of severity warning is not said to be violated."""
    assert text_of([replace(FINDING, severity="warning")]).startswith("gradient-sync at risk: net2.weight (rank 1)\n")


def test_findings_stand_one_under_the_other():
    """Several findings are told in their order; none is no text."""
    other = replace(FINDING, subject="net1.bias")
    assert text_of([FINDING, other]) == f"{text_of([FINDING])}\n{text_of([other])}"
    assert text_of([]) == ""


def test_a_finding_in_one_line():
    """A message has what was expected and found, and the cause where there is one."""
    assert FINDING.message == (
        "Expected all ranks to hold the same gradients. Found 1 of 4 gradients to differ. "
        "Likely cause: the model is within no_sync()."
    )
    assert replace(FINDING, cause="").message == (
        "Expected all ranks to hold the same gradients. Found 1 of 4 gradients to differ."
    )


def test_a_place_is_a_line_and_a_function():
    """A call site reads as file, line and function."""
    assert str(CallSite(file="a.py", line=3, function="f")) == "a.py:3 in f"
