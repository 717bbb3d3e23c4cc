"""``resume-equivalence``: see explanation.md beside this file."""

from __future__ import annotations

from ddpcheck.checks.check import Check

CHECK = Check(
    holds="save, rebuild, load and go on equals never having stopped",
    order=210,
    asserted_on=("held state", "buffers", "communication hooks"),
    assertions=("assert_resume_equivalent", "assert_checkpoint_resumable"),
)
