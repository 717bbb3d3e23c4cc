"""What a planted fault has brought to light."""

from __future__ import annotations

import pytest

import ddpcheck
from ddpcheck.vocabulary.model import Finding


def only_finding(caught: pytest.ExceptionInfo[ddpcheck.Violation]) -> Finding:
    """The one finding of a violation, after making sure that it is an error and names the line that asserted."""
    (finding,) = caught.value.findings
    assert finding.severity == "error"
    assert finding.where is not None
    passed_through = {(str(entry.path), entry.lineno + 1) for entry in caught.traceback}
    assert (finding.where.file, finding.where.line) in passed_through
    assert finding.where.file != __file__
    return finding
