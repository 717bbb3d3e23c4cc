"""--page and --trace of real runs: the page has the finding and its moment, and the trace the same events."""

from __future__ import annotations

import gzip
import json
import re

import pytest
from running import run, script

FAULTY = """
model, optimizer = setup()
for _ in range(3):
    step(model, optimizer, model.module)  # the fault
dist.barrier()
if dist.get_rank() == 0:
    torch.save(model.module.state_dict(), "last.pt")
dist.barrier()
dist.destroy_process_group()
"""


def data_of(page):
    text = page.read_text(encoding="utf-8")
    return json.loads(re.search(r'id="timeline-data">(.*?)</script>', text, re.DOTALL)[1])


def test_a_run_with_a_finding(tmp_path, forks):
    """Exit code and report as without them; both files are named in the report."""
    page, trace = tmp_path / "run.html", tmp_path / "run.json.gz"
    options = ["--page", page, "--trace", trace, "--nproc-per-node", "2"]
    ran = run(tmp_path, *options, script(tmp_path, FAULTY), forks=forks)
    assert ran.code == 1
    assert ran.found == ["reducer-coverage"]
    assert "run.html" in ran.err
    assert "run.json.gz" in ran.err
    text = page.read_text()
    assert "reducer-coverage" in text
    assert ran.document["findings"][0]["advice"].replace("'", "&#39;") in text
    found = data_of(page)
    assert [lane["rank"] for lane in found["lanes"]] == [0, 1]
    assert {mark[1] for mark in found["marks"]} == {0, 1}
    events = json.loads(gzip.decompress(trace.read_bytes()))["traceEvents"]
    kinds = {(event["pid"], event.get("cat")) for event in events if event["ph"] == "X"}
    for rank in (1, 2):
        assert {(rank, "backward"), (rank, "step"), (rank, "collective")} <= kinds
    assert (1, "save") in kinds
    lines = {event["args"].get("code") for event in events if event.get("cat") == "collective"}
    assert "dist.barrier()" in lines


@pytest.mark.long
def test_a_program_that_fails_before_it_joins(tmp_path, forks):
    """The ranks have lanes all the same, with what they raised."""
    page = tmp_path / "run.html"
    ran = run(
        tmp_path,
        "--page",
        page,
        "--nproc-per-node",
        "2",
        script(tmp_path, 'raise ValueError("no </script> here")'),
        forks=forks,
    )
    assert ran.code == 1
    assert "no &lt;/script&gt; here" in page.read_text()
    found = data_of(page)
    assert [lane["rank"] for lane in found["lanes"]] == [0, 1]
    assert any("ValueError" in moment[2] for lane in found["lanes"] for moment in lane["moments"])


@pytest.mark.long
def test_a_program_without_torch(tmp_path, forks):
    """Nothing was checked, and the page says so."""
    ran = run(tmp_path, "--page", tmp_path / "run.html", script(tmp_path, "print(1)", head=""), forks=forks)
    assert ran.code == 3
    assert "NOTHING CHECKED" in (tmp_path / "run.html").read_text()


@pytest.mark.parametrize("option", ["--page", "--trace"])
def test_a_file_that_cannot_be_written(tmp_path, forks, option):
    """Is refused before anything starts."""
    ran = run(tmp_path, option, tmp_path / "no" / "file", script(tmp_path, "print(1)"), forks=forks)
    assert ran.code == 2
    assert "there is no folder" in ran.err
