"""The page that a run on GPUs leaves: what it ran on, and what pytest said of it."""

from __future__ import annotations

import pytest

from tests.gpu import facts
from tests.gpu.facts import Facts, file_name, page, summary

FACTS = Facts(
    date="2026-01-31",
    gpus=("NVIDIA H100 80GB HBM3", "NVIDIA H100 80GB HBM3", "Tesla T4"),
    driver="570.1",
    torch="2.15.0+cu132",
    cuda="13.2",
    nccl="2.30.7",
    python="3.13.1",
    commit="abc1234",
)

OUTPUT = f"""\
============= test session starts ==============
tests/gpu/test_digests.py ..F [100%]

\x1b[31m\x1b[1m=================== FAILURES ===================\x1b[0m
{facts.ROOT}/tests/gpu/test_digests.py:40: AssertionError
------------- invariants, as 4 ddp tests checked them in 6 ranks -------------
=========================== short test summary info ============================
FAILED tests/gpu/test_digests.py::test_it
========= 1 failed, 2 passed in 12.00s =========
"""


def test_a_name_for_the_page():
    """The date and the GPU, in plain letters."""
    assert file_name(FACTS) == "2026-01-31-nvidia-h100-80gb-hbm3.md"
    assert file_name(FACTS._replace(gpus=("Ünknown (tm) / 1",))) == "2026-01-31-nknown-tm-1.md"


def test_what_is_kept_of_the_output():
    """From the first summary on, without colours and without this machine's folders."""
    kept = summary(OUTPUT)
    assert kept.startswith("=================== FAILURES")
    assert "\x1b" not in kept
    assert str(facts.ROOT) not in kept
    assert kept.endswith("1 failed, 2 passed in 12.00s =========")
    assert summary("=== 3 passed in 1.00s ===\n") == "=== 3 passed in 1.00s ==="
    assert summary("") == ""


@pytest.mark.parametrize(
    ("code", "verdict"),
    [(0, "All of them passed or were skipped."), (1, "exit code 1"), (None, "did not end")],
)
def test_the_page_says_what_it_ran_on(code, verdict):
    """Date, GPUs, driver, torch, CUDA, NCCL, Python and commit, the command, and how it ended."""
    text = page(FACTS, ["-m", "gpu"], OUTPUT, code)
    for part in (
        "# The tests on 2 x NVIDIA H100 80GB HBM3, 1 x Tesla T4, 2026-01-31",
        "| driver | 570.1 |",
        "| torch | 2.15.0+cu132 (CUDA 13.2) |",
        "| NCCL | 2.30.7 |",
        "| Python | 3.13.1 |",
        "| commit | abc1234 |",
        "`pytest -m gpu`",
        "FAILED tests/gpu/test_digests.py::test_it",
        verdict,
    ):
        assert part in text


def test_a_program_that_is_not_there_is_unknown():
    """A machine without the driver's tools still has a page."""
    assert facts.said("no-such-program") == "unknown"
    assert facts.said("false") == "unknown"


def test_what_cannot_be_asked_is_unknown(monkeypatch):
    """A torch that does not even import leaves the rest of the facts."""
    monkeypatch.setattr(facts, "said", lambda *command: "unknown" if "git" not in command else "abc1234")
    found = facts.gather()
    assert (found.gpus, found.torch, found.driver, found.commit) == ((), "unknown", "unknown", "abc1234")
