"""ddpcheck: know that distributed training is right. Importing it imports no torch.

PYTEST_DONT_REWRITE (its own assertions are for its authors)
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ddpcheck.assertions import (
        AtRisk,
        assert_batch_count,
        assert_epochs_reshuffled,
        assert_gradients_identical,
        assert_initial_broadcast,
        assert_parameters_identical,
        assert_replicas_identical,
        assert_shards_partition,
    )
    from ddpcheck.checkpoints.assertions import (
        assert_atomic_save,
        assert_checkpoint_resumable,
        assert_load_complete,
        assert_map_location,
        assert_read_after_write,
        assert_resume_equivalent,
        assert_single_writer,
    )
    from ddpcheck.conformance.job import Job
    from ddpcheck.conformance.public import NonConformance, check_trainer, parametrize_with_checks
    from ddpcheck.conformance.results import Result, Results
    from ddpcheck.conformance.support import NotSupported
    from ddpcheck.devices import NotSimulated, simulated_devices
    from ddpcheck.placement import assert_device_placement
    from ddpcheck.properties.stateful import run_state_machine
    from ddpcheck.ranks.current import OutsideRank, Violation

__all__ = [
    "AtRisk",
    "Job",
    "NonConformance",
    "NotSimulated",
    "NotSupported",
    "OutsideRank",
    "Result",
    "Results",
    "Violation",
    "assert_atomic_save",
    "assert_batch_count",
    "assert_checkpoint_resumable",
    "assert_device_placement",
    "assert_epochs_reshuffled",
    "assert_gradients_identical",
    "assert_initial_broadcast",
    "assert_load_complete",
    "assert_map_location",
    "assert_parameters_identical",
    "assert_read_after_write",
    "assert_replicas_identical",
    "assert_resume_equivalent",
    "assert_shards_partition",
    "assert_single_writer",
    "check_trainer",
    "parametrize_with_checks",
    "run_state_machine",
    "simulated_devices",
]

_HOMES = {
    "Job": "ddpcheck.conformance.job",
    "NonConformance": "ddpcheck.conformance.public",
    "NotSimulated": "ddpcheck.devices",
    "NotSupported": "ddpcheck.conformance.support",
    "OutsideRank": "ddpcheck.ranks.current",
    "Result": "ddpcheck.conformance.results",
    "Results": "ddpcheck.conformance.results",
    "Violation": "ddpcheck.ranks.current",
    "assert_atomic_save": "ddpcheck.checkpoints.assertions",
    "assert_checkpoint_resumable": "ddpcheck.checkpoints.assertions",
    "assert_device_placement": "ddpcheck.placement",
    "assert_load_complete": "ddpcheck.checkpoints.assertions",
    "assert_map_location": "ddpcheck.checkpoints.assertions",
    "assert_read_after_write": "ddpcheck.checkpoints.assertions",
    "assert_resume_equivalent": "ddpcheck.checkpoints.assertions",
    "assert_single_writer": "ddpcheck.checkpoints.assertions",
    "check_trainer": "ddpcheck.conformance.public",
    "parametrize_with_checks": "ddpcheck.conformance.public",
    "run_state_machine": "ddpcheck.properties.stateful",
    "simulated_devices": "ddpcheck.devices",
}
"""Where a name comes from that is not one of the assertions' file."""


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'ddpcheck' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_HOMES.get(name, "ddpcheck.assertions")), name)


def __dir__() -> list[str]:
    return __all__
