"""How long after a rank has failed pytest reports the test, when the other ranks are blocked in a collective."""

from __future__ import annotations

import uuid

from figures import Row, spread
from inner import MeasurementFailed, Workbench

WAYS = {"raises": "raises", "killed": "is killed by SIGKILL", "leaves": "leaves by os._exit(0)"}
SIZES = (2, 4, 8)
TESTS = 3
LIMIT = 1.0


def measure(bench: Workbench) -> list[Row]:
    """One session; each failing rank writes the time just before it fails, and the outer pytest when it is told."""
    folder = bench.folder / f"failed-{uuid.uuid4().hex}"
    folder.mkdir()
    session = bench.session("inner_failing.py", must_pass=False, BENCH_FAILED=folder, BENCH_TESTS=TESTS)
    rows = []
    for way, said in WAYS.items():
        for size in SIZES:
            times = []
            for test in session.tests:
                name = _file(test["test"])
                if name.startswith(f"{way}-{size}-"):
                    if test["outcome"] != "failed" or "failed first" not in test["text"]:
                        raise MeasurementFailed(f"{test} did not fail as it must")
                    times.append(test["reported"] - float((folder / name).read_text()))
            slowest = max(times)
            rows.append(
                Row(f"one of {size} ranks {said}", spread(times, 2), "", "", f"{LIMIT:g} s each", slowest <= LIMIT)
            )
    return rows


def _file(test: str) -> str:
    """The name of the file that a test's failing rank has written."""
    parts = test.split("[")[1].rstrip("]").split("-")
    how = next(part for part in parts if part in WAYS)
    size = next(part for part in parts if part.endswith("ranks")).removesuffix("ranks")
    turn = next(part for part in parts if part.isdigit())
    return f"{how}-{size}-{turn}"
