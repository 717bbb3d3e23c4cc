"""What is measured before a step, and the one number that gradients were multiplied by since."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

import ddpcheck
from ddpcheck import evidence as ev
from ddpcheck.probes.devices.awaited import told
from ddpcheck.probes.optimizers import gradient_norms
from tests.probes.digests.counted_operations import Counting

GRADIENTS = [torch.randn(5, 4, generator=torch.Generator().manual_seed(n)) for n in range(4)]


def parameters(gradients: list[torch.Tensor | None]) -> list[torch.Tensor]:
    found = []
    for gradient in gradients:
        kind = torch.float32 if gradient is None else gradient.dtype
        device = "cpu" if gradient is None else gradient.device
        found.append(torch.nn.Parameter(torch.zeros(5, 4, dtype=kind, device=device)))
        found[-1].grad = gradient
    return found


def measured(gradients: list[torch.Tensor | None]) -> gradient_norms.Facts:
    found = told(gradient_norms.measured(parameters(gradients)))
    assert isinstance(found, gradient_norms.Facts)
    return found


@pytest.mark.parametrize(
    ("now", "factor"),
    [
        (GRADIENTS, 1.0),
        ([g * 0.25 for g in GRADIENTS], 0.25),
        ([g / 3 for g in GRADIENTS], 1 / 3),
        ([GRADIENTS[0] * 0.5, *GRADIENTS[1:]], None),
        ([g.clamp(-0.5, 0.5) for g in GRADIENTS], None),
        ([g + 1 for g in GRADIENTS], None),
        ([None, *GRADIENTS[1:]], None),
        ([g * 0 for g in GRADIENTS], None),
        ([g * float("nan") for g in GRADIENTS], None),
        ([-g for g in GRADIENTS], None),
    ],
)
def test_one_number_for_all(now, factor):
    """A clip by a norm, or a division; and nothing else."""
    found = measured(GRADIENTS).factor_until(measured(now))
    assert found == (pytest.approx(factor) if factor else None)


@pytest.mark.parametrize("kind", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
def test_on_a_device_as_on_the_cpu(kind):
    """The same squares and elements, some of them beside others on the CPU; NOTHING where there is no gradient."""
    before = [*(g.to(kind) for g in GRADIENTS), None]
    expected = measured(before)
    with ddpcheck.simulated_devices(2):
        there = [g if g is None else g.to(f"cuda:{n % 2}") if n else g for n, g in enumerate(before)]
        found = measured(there)
        later = measured([g if g is None else g * 0.5 for g in there])
    assert found.norms == pytest.approx(expected.norms, rel=1e-6)
    assert (found.sample, found.rough) == (expected.sample, expected.rough)
    assert found.factor_until(later) == pytest.approx(0.5)


def test_nobody_waits_for_a_device():
    """Few kernels for each gradient, and one number for each travels."""
    with ddpcheck.simulated_devices(1):
        there = parameters([g.cuda() for g in GRADIENTS])
        with Counting() as counted:
            gradient_norms.measured(there)
    assert counted.waits == 0
    assert counted.kernels <= 3 * len(GRADIENTS)


def test_an_average_is_no_factor():
    """A lone tensor always has some ratio of norms: its elements are asked, too."""
    assert measured(GRADIENTS[:1]).factor_until(measured([GRADIENTS[0] + GRADIENTS[1]])) is None
    assert measured(GRADIENTS[:1]).factor_until(measured([GRADIENTS[0] * 0.5])) == pytest.approx(0.5)


@pytest.mark.parametrize("kind", [torch.float64, torch.bfloat16, torch.float16])
def test_other_precisions(kind):
    """Rounding is no difference."""
    before = [g.to(kind) for g in GRADIENTS]
    found = measured(before).factor_until(measured([g * 0.3 for g in before]))
    assert found == pytest.approx(0.3, rel=5e-3)


def test_nothing_to_measure():
    """No gradients, or none that are in the CPU's memory."""
    assert not measured([None, None]).is_seen
    assert not measured([torch.zeros(5, 4)]).is_seen
    assert not measured([torch.zeros(5, 4, device="meta")]).is_seen
    assert not measured([torch.eye(5)[:, :4].to_sparse()]).is_seen


def train(steps: int, before_step: Any, device: str = "cpu") -> None:
    torch.manual_seed(0)
    net = torch.nn.Linear(6, 3, device=device)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    for _ in range(steps):
        optimizer.zero_grad()
        (net(torch.randn(4, 6, device=device)) * 30).square().mean().backward()
        before_step(net, optimizer)
        optimizer.step()


def test_a_clip_is_recorded(recorded):
    """Its line, its bound, the norm that came out, and the factor."""
    train(2, lambda net, _: torch.nn.utils.clip_grad_norm_(net.parameters(), 0.5))
    first, second = recorded(ev.Norm)
    assert (first.how, first.largest, first.number, second.number) == ("clip_grad_norm_", 0.5, 0, 1)
    assert math.hypot(*ev.unpacked(first.norms)) == pytest.approx(first.came)
    assert first.factor == pytest.approx(0.5 / first.came, rel=1e-4)
    assert first.site != second.step_site


def clip(net: Any, _: Any) -> None:
    torch.nn.utils.clip_grad_norm_(net.parameters(), 0.5)


def clip_zeros(net: Any, _: Any) -> None:
    for p in net.parameters():
        p.grad.zero_()
    clip(net, _)


@pytest.mark.parametrize(("before_step", "number"), [(clip, 2), (clip_zeros, 0)])
def test_a_clip_on_a_device(recorded, before_step, number):
    """It is recorded as on the CPU."""
    train(2, before_step)
    with ddpcheck.simulated_devices(1):
        train(2, before_step, "cuda")
    found = recorded(ev.Norm)
    assert len(found) == 2 * number
    for one, other in zip(found[:number], found[number:], strict=True):
        assert ev.unpacked(other.norms) == pytest.approx(ev.unpacked(one.norms))
        assert (other.factor, other.came) == pytest.approx((one.factor, one.came))
        assert (other.how, other.largest, other.number) == (one.how, one.largest, one.number)


def test_a_number_that_changes_is_read_as_it_was():
    """As the squares that a program sums up over ranks, in place."""
    with ddpcheck.simulated_devices(1):
        squares = torch.tensor(2.0, device="cuda")
        given = gradient_norms._number(squares)
        squares += 3
        assert (told(given), told(gradient_norms._number(squares))) == (2.0, 5.0)


def test_nothing_is_measured_in_a_capture(recorded, monkeypatch):
    """What is queued there becomes a part of the graph."""
    monkeypatch.setattr(gradient_norms, "asleep", lambda: True)
    train(2, clip)
    assert recorded(ev.Norm) == []


@pytest.mark.parametrize("device", ["cpu", "cuda"])
@pytest.mark.parametrize("power", [1.0, 3.5, math.inf, "inf"])
def test_norms_of_other_powers(recorded, power, device):
    """They are measured by the power that torch's function was given."""

    def clip_by(net, _):
        torch.nn.utils.clip_grad_norm_(net.parameters(), 0.5, norm_type=power)

    with ddpcheck.simulated_devices(1):
        train(2, clip_by, device)
    first, _ = recorded(ev.Norm)
    norms = torch.tensor(ev.unpacked(first.norms))
    assert first.power == float(power)
    assert torch.linalg.vector_norm(norms, first.power) == pytest.approx(first.came, rel=1e-5)
    assert first.factor == pytest.approx(0.5 / first.came, rel=1e-4)


def test_what_is_no_norm_is_not_measured(recorded):
    train(2, lambda net, _: torch.nn.utils.clip_grad_norm_(net.parameters(), 0.5, norm_type=0.0))
    assert recorded(ev.Norm) == []


def test_a_norm_that_the_program_hands_over(recorded):
    """Of the clip, both numbers are known: the bound, and the norm that the program came to."""

    def clip_by_twice_the_norm(net, _):
        norm = torch.nn.utils.get_total_norm([p.grad for p in net.parameters()])
        torch.nn.utils.clip_grads_with_norm_(net.parameters(), 0.5, 2 * norm)

    train(1, clip_by_twice_the_norm)
    made, clipped = recorded(ev.Norm)
    assert (made.how, clipped.how, clipped.largest) == ("get_total_norm", "clip_grads_with_norm_", 0.5)
    assert clipped.came == pytest.approx(2 * made.came)
    assert clipped.factor == pytest.approx(0.25 / made.came, rel=1e-4)
    assert clipped.moment == made.moment + 1


def test_the_last_of_many_clips_is_recorded(recorded):
    """As where each micro-batch is clipped."""
    net = torch.nn.Linear(6, 3)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    for _ in range(9):
        net(torch.randn(4, 6)).square().mean().backward()
        torch.nn.utils.clip_grad_norm_(net.parameters(), 0.01)
    optimizer.step()
    found = recorded(ev.Norm)
    assert [one.backwards_later for one in found] == [8, 7, 6, 5, 4, 0]
    assert [one.factor is None for one in found] == [True] * 5 + [False]


def test_clips_of_tensor_after_tensor_are_measured_a_few_times(recorded, monkeypatch):
    """Each measurement is of all gradients."""
    made = []
    measured = gradient_norms.measured
    monkeypatch.setattr(gradient_norms, "measured", lambda *given: made.append(given) or measured(*given))
    net = torch.nn.Sequential(*(torch.nn.Linear(3, 3) for _ in range(20)))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    net(torch.randn(4, 3)).square().mean().backward()
    for p in net.parameters():
        torch.nn.utils.clip_grad_norm_(p, 0.01)
    optimizer.step()
    assert len(recorded(ev.Norm)) == gradient_norms.MOST
    assert len(made) == gradient_norms.MOST + 1


def test_zeroed_rows_are_no_factor(recorded):
    """Though the rows in the middle of the only gradient are as they were."""
    table = torch.nn.Parameter(torch.randn(40, 6))
    optimizer = torch.optim.SGD([table], lr=0.1)
    table.square().mean().backward()
    torch.nn.utils.clip_grad_norm_([table], 100.0)
    table.grad[:10] = 0
    optimizer.step()
    assert [one.factor for one in recorded(ev.Norm)] == [None]


def test_several_optimizers_of_one_measurement(recorded):
    """Their records have one number."""
    net = torch.nn.Linear(6, 3)
    optimizers = [torch.optim.SGD([p], lr=0.1) for p in net.parameters()]
    for _ in range(2):
        net(torch.randn(4, 6)).square().mean().backward()
        torch.nn.utils.clip_grad_norm_(net.parameters(), 0.01)
        for one in optimizers:
            one.step()
    first, second, third, fourth = recorded(ev.Norm)
    assert first.moment == second.moment != third.moment == fourth.moment
    assert math.hypot(*ev.unpacked(first.norms), *ev.unpacked(second.norms)) == pytest.approx(first.came)


def test_no_measurement_no_record(recorded):
    """Most programs neither clip nor have shards."""
    train(3, lambda *_: None)
    assert len(recorded(ev.Step)) == 3
    assert recorded(ev.Norm) == []


def test_evidence_of_long_runs_is_small(recorded):
    """The first steps are written down, and from there ever fewer."""
    train(600, lambda net, _: torch.nn.utils.clip_grad_norm_(net.parameters(), 0.5))
    assert len(recorded(ev.Norm)) < 20


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_a_clip_before_unscaling(recorded, device):
    """What the scaler divides by is noted of what came before it, and not of what comes after."""
    with ddpcheck.simulated_devices(1):
        clip_around_unscaling(device)
    first, second = (one for one in recorded(ev.Norm) if one.how == "clip_grad_norm_")
    assert (first.scale, second.scale) == (1024.0, None)


def clip_around_unscaling(device: str) -> None:
    net = torch.nn.Linear(6, 3, device=device)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler(device, init_scale=1024.0)
    for early in (True, False):
        optimizer.zero_grad()
        scaler.scale(net(torch.randn(4, 6, device=device)).square().mean()).backward()
        if not early:
            scaler.unscale_(optimizer)
        torch.nn.utils.clip_grad_norm_(net.parameters(), 0.01)
        scaler.step(optimizer)
        scaler.update()


def test_programs_get_what_torch_gives(recorded):
    """The same result, and torch's own errors."""
    net = torch.nn.Linear(6, 3)
    net(torch.ones(1, 6)).sum().backward()
    wanted = torch.stack([p.grad.norm() for p in net.parameters()]).norm()
    torch.testing.assert_close(torch.nn.utils.clip_grad_norm_(iter(list(net.parameters())), 100.0), wanted)
    with pytest.raises(TypeError):
        torch.nn.utils.clip_grad_norm_()
    net.weight.grad.fill_(float("nan"))
    with pytest.raises(RuntimeError, match="non-finite"):
        torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0, error_if_nonfinite=True)
