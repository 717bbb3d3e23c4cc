"""ddpcheck: know that distributed training is right. Importing it imports no torch.

PYTEST_DONT_REWRITE (its own assertions are for its authors)
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ddpcheck.assertions.checkpoints import (
        assert_atomic_save,
        assert_checkpoint_resumable,
        assert_load_complete,
        assert_map_location,
        assert_read_after_write,
        assert_resume_equivalent,
        assert_single_writer,
    )
    from ddpcheck.assertions.devices import assert_device_placement
    from ddpcheck.assertions.model_and_data import (
        assert_batch_count,
        assert_epochs_reshuffled,
        assert_gradients_identical,
        assert_initial_broadcast,
        assert_parameters_identical,
        assert_replicas_identical,
        assert_shards_partition,
    )
    from ddpcheck.conformance.check_trainer import NonConformance, check_trainer, parametrize_with_checks
    from ddpcheck.conformance.job import Job
    from ddpcheck.conformance.not_supported import NotSupported
    from ddpcheck.conformance.results import Result, Results
    from ddpcheck.device_simulation import NotSimulated, simulated_devices
    from ddpcheck.examples.state_machines import run_state_machine
    from ddpcheck.ranks.current_rank import OutsideRank, Violation
    from ddpcheck.ranks.judged_assertion import AtRisk

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
    "AtRisk": "ddpcheck.ranks.judged_assertion",
    "Job": "ddpcheck.conformance.job",
    "NonConformance": "ddpcheck.conformance.check_trainer",
    "NotSimulated": "ddpcheck.device_simulation",
    "NotSupported": "ddpcheck.conformance.not_supported",
    "OutsideRank": "ddpcheck.ranks.current_rank",
    "Result": "ddpcheck.conformance.results",
    "Results": "ddpcheck.conformance.results",
    "Violation": "ddpcheck.ranks.current_rank",
    "assert_atomic_save": "ddpcheck.assertions.checkpoints",
    "assert_checkpoint_resumable": "ddpcheck.assertions.checkpoints",
    "assert_device_placement": "ddpcheck.assertions.devices",
    "assert_load_complete": "ddpcheck.assertions.checkpoints",
    "assert_map_location": "ddpcheck.assertions.checkpoints",
    "assert_read_after_write": "ddpcheck.assertions.checkpoints",
    "assert_resume_equivalent": "ddpcheck.assertions.checkpoints",
    "assert_single_writer": "ddpcheck.assertions.checkpoints",
    "check_trainer": "ddpcheck.conformance.check_trainer",
    "parametrize_with_checks": "ddpcheck.conformance.check_trainer",
    "run_state_machine": "ddpcheck.examples.state_machines",
    "simulated_devices": "ddpcheck.device_simulation",
}
"""Where a name comes from that is not one of the assertions' file."""


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'ddpcheck' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_HOMES.get(name, "ddpcheck.assertions.model_and_data")), name)


def __dir__() -> list[str]:
    return __all__
