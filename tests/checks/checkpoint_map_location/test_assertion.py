"""The judge of where a load puts tensors, over evidence written by hand."""

from __future__ import annotations

from ddpcheck import evidence as ev
from ddpcheck.evidence.recorded_save import Recorded
from tests.judging.checkpoint_facts import joined, judged


def loading(rank: int, device: str, given: str = "") -> bytes:
    """The records of a rank that loads a file to a device."""
    read = ev.File(
        n=2, at=2.0, op="read", how="torch.load", path="/x/m.pt", target="", site=0, ended=3, existed=True, thread="",
        device=given, devices=[device], keys=["w"],
    )  # fmt: skip
    return joined(rank) + ev.frame(read)


def test_tensors_on_another_ranks_device() -> None:
    """A load that puts tensors on a GPU which is not the rank's is told, with how it was called."""
    facts = [Recorded(evidence=loading(rank, "cuda:0"), own=(f"cuda:{rank}",)) for rank in range(2)]
    (finding,) = judged("checkpoint-map-location", *facts)
    assert (finding.severity, finding.ranks) == ("error", (1,))
    assert "tensors on cuda:0 after torch.load with no map_location" in finding.found


def test_tensors_on_the_own_device_or_the_cpu() -> None:
    """Where they belong, and on the CPU, they are right."""
    for device, given in (("cuda:1", "cuda:1"), ("cpu", "cpu")):
        facts = Recorded(evidence=loading(1, device, given), own=("cuda:1",))
        assert judged("checkpoint-map-location", Recorded(evidence=joined(0), own=("cuda:0",)), facts) == ()


def test_parameters_that_a_load_has_moved() -> None:
    """A load that puts other tensors in place of the model's own has moved them."""
    moved = Recorded(evidence=joined(1), own=("cuda:1",), moved={"model.w": ("cuda:1", "cuda:0")})
    (finding,) = judged("checkpoint-map-location", Recorded(evidence=joined(0), own=("cuda:0",)), moved)
    assert (finding.subject, finding.ranks) == ("model.w", (1,))
    assert "model.w on cuda:0 on rank 1" in finding.found
