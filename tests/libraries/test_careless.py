"""What an adapter has to know of a library: one that does not is told, by the check that the document names."""

from __future__ import annotations

import importlib

import pytest

import ddpcheck


@pytest.mark.parametrize(
    ("library", "module", "name", "check", "words"),
    [
        ("accelerate", "careless_accelerate", "scheduled_by_default", "optimizer-sync:schedule", "once for each rank"),
        ("accelerate", "careless_accelerate", "seeded_apart", "shard-partition:drop-last", "taken by no rank"),
        ("lightning", "careless_lightning", "seeded_alike", "rng-independence", "the same mask"),
        ("lightning", "careless_fabric", "in_double_precision", "gradient-oracle:in-order", "single precision"),
        ("lightning", "careless_fabric", "seeded_apart", "shard-partition:drop-last", "taken by no rank"),
    ],
)
def test_it_is_told(library: str, module: str, name: str, check: str, words: str) -> None:
    pytest.importorskip(library)
    fit = getattr(importlib.import_module(f"fixtures.trainers.{module}"), name)
    results = ddpcheck.check_trainer(fit, world_sizes=[2], checks=["adapter", check], on_failure="return")
    (violated,) = results.of("violated")
    assert violated.check == check
    assert words in " ".join(violated.text.split())
