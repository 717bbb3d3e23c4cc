"""A run of one rank: its probes step aside, and its end is told."""

from __future__ import annotations

from running import run, script

from ddpcheck import evidence as ev
from ddpcheck.judging.evidence_folder import Folder

BODY = """
model, optimizer = setup()
for _ in range(6):
    step(model, optimizer)
dist.destroy_process_group()
"""


def test_nothing_is_looked_at(tmp_path, forks):
    """Its steps, calls and end are on record, and no look at any tensor."""
    kept = tmp_path / "evidence"
    ran = run(tmp_path, "--nproc-per-node", "1", "--evidence", kept, script(tmp_path, BODY), forks=forks)
    assert (ran.code, ran.document["verdict"]) == (3, "nothing-checked")
    folder = Folder(kept)
    folder.read()
    (rank,) = [process for process in folder.processes.values() if process.last(ev.Joined) is not None]
    assert len(rank.of(ev.Step)) == 6
    assert not any(step.gradients or step.parameters for step in rank.of(ev.Step))
    for kind in (ev.Looking, ev.LossWeights, ev.Inputs, ev.Window, ev.Norm):
        assert rank.of(kind) == [], kind
    assert rank.of(ev.Call)
    assert [len(rank.of(kind)) for kind in (ev.Left, ev.Ended)] == [1, 1]


def test_a_failure_is_told(tmp_path, forks):
    """It concerns this rank alone."""
    body = BODY.replace("dist.destroy_process_group()", "raise ValueError('no such sample')")
    ran = run(tmp_path, "--nproc-per-node", "1", script(tmp_path, body), forks=forks)
    assert (ran.code, ran.document["verdict"]) == (1, "failed")
    assert "no such sample" in ran.err
