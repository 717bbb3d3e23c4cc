"""The judge of where a load puts tensors, over evidence written by hand."""

from __future__ import annotations

import pytest

from tests.judging.judged_files import ask, at
from tests.judging.written import call, load, loaded, save, wrapped

LOCATION, COMPLETE = "checkpoint-map-location", "checkpoint-load-complete"


def test_map_location_holds():
    """Given, on every rank."""
    judged = ask(LOCATION, *[[load("/job/a.pt", 5), loaded("module", 6)]] * 2)
    assert (judged.checked, judged.findings) == (2, ())


def test_without_map_location_on_the_cpu():
    """Right by luck, on the ranks that have not saved it."""
    writes = [save("/job/a.pt", 3), call(1, 4)]
    reads = [load("/job/a.pt", 5, device=""), loaded("module", 6)]
    (finding,) = ask(LOCATION, [*writes, *reads], [call(1, 4), *reads]).findings
    assert (finding.severity, finding.ranks, finding.where) == ("warning", (1,), at(5))


def test_a_checkpoint_of_another_run_is_rank_0s():
    """What this run has not saved, rank 0 may load as it likes."""
    reads = [load("/job/a.pt", 5, device=""), loaded("module", 6)]
    (finding,) = ask(LOCATION, reads, reads).findings
    assert finding.ranks == (1,)
    assert ask(LOCATION, reads, []).findings == ()


def test_data_needs_no_map_location():
    """Tensors that go into no module are samples."""
    reads = [load("/job/data.pt", 5, device="", keys=[]), load("/job/a.pt", 6), loaded("module", 7)]
    assert ask(LOCATION, reads, reads).findings == ()


def test_what_holds_no_tensors_is_not_counted():
    """A load of numbers and text lands nowhere."""
    assert ask(LOCATION, *[[load("/job/a.pt", 5, device="", devices=[])]] * 2).checked == 0


@pytest.mark.parametrize(("device", "lands", "wrong"), [
    ("", "cuda:0", True), ("cuda", "cuda:1", False), ("cuda:0", "cuda:0", True), ("cpu", "cpu", False),
])  # fmt: skip
def test_a_load_onto_another_gpu(device, lands, wrong):
    """Every rank's tensors on the GPU that saved them."""
    ranks = [
        [wrapped(3, devices=[f"cuda:{r}"]), load("/job/a.pt", 5, device=device, devices=[lands])] for r in range(2)
    ]
    findings = ask(LOCATION, ranks[0][:1], ranks[1]).findings
    assert [(f.severity, f.ranks, f.where) for f in findings] == [("error", (1,), at(5))] * wrong
