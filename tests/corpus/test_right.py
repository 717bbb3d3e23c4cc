"""Right programs of every kind of parallelism are not accused: no finding of severity error, no defect of ours."""

from __future__ import annotations

import json

import pytest

from tests.recordings.catalogue import everything

pytestmark = pytest.mark.long

RIGHT = [
    *(name for name in everything() if name.startswith("right/")),
    *(
        f"cases/{name}"
        for name in (
            "diloco",
            "expert_parallel",
            "ignored_parameters",
            "local_sgd",
            "pipeline_equal_stages",
            "tensor_parallel_by_hand",
            "truncate_only",
        )
    ),
]

SILENT = (
    "adapters_merged",
    "average_in_another_model",
    "average_sent_meanwhile",
    "averaged_backbone",
    "averaged_generator",
    "averaged_over_epochs",
    "bagged_groups",
    "bagged_heads",
    "baseline_evaluated_in_shards",
    "blocks_in_turn",
    "bounded_beside_owners",
    "checkpoint_of_half_precision",
    "checkpoint_tried_out",
    "class_centres_of_one_seed",
    "clients_with_own_scaling",
    "clipped_beside_another",
    "clipped_by_value_in_half_precision",
    "counters_beside_lasting_workers",
    "critic_clipped_alone",
    "cross_validation",
    "curriculum_with_hard_samples_again",
    "diloco_of_shards_seldom",
    "drawn_after_a_load",
    "dry_run_before_broadcast",
    "endless_mixture_by_weights",
    "ensemble",
    "ensemble_along_a_mesh",
    "ensemble_by_node",
    "evaluation_batches_kept",
    "experts_balanced_by_bias",
    "experts_divided_by_own_tokens",
    "fixed_teacher",
    "gradients_weighted_by_tokens",
    "grown_after_load",
    "halved_table_gradient",
    "hsdp_deferred_short_window",
    "last_layer_frozen_at_first",
    "last_window_of_its_own_size",
    "last_window_scaled_up",
    "layers_drawn_after_load",
    "masters_after_load",
    "mean_of_last_checkpoints",
    "moments_carried_over",
    "momentum_encoder",
    "momentum_gathered",
    "new_head_after_load",
    "new_optimizer_after_warm_up",
    "noise_beside_agreed_choices",
    "norm_along_both_dimensions",
    "norm_of_mean_squares",
    "norms_gathered",
    "one_batch_before_the_training",
    "one_call_by_several_functions",
    "packed_texts",
    "pipeline_ends_in_other_places",
    "pipeline_evaluated_between",
    "pipeline_interleaved",
    "pipeline_optimizer_for_each_stage",
    "pipeline_scaled",
    "pipeline_unequal_labels",
    "pipeline_zeroed_once",
    "position_behind_a_queue",
    "position_resumed",
    "ranks_weighted_by_groups",
    "rate_searched_first",
    "reduced_to_owners_by_hooks",
    "repeated_augmentation",
    "replay_buffers_of_ranks",
    "search_over_rates_on_a_mesh",
    "sequence_parallel_readers",
    "sequence_summed_beside_fsdp",
    "snapshot_taken_back",
    "soup_of_checkpoints",
    "steps_skipped_at_the_end",
    "sum_over_a_micro_batch",
    "sums_of_two_kinds",
    "table_averaged_seldom",
    "table_stepped_by_hand",
    "tables_and_dense_parts",
    "target_renewed_now_and_then",
    "tensor_parallel_clipped_by_hand",
    "two_views_and_evaluation_of_the_training_set",
    "window_divided_by_all_tokens",
    "zigzag_with_computed_positions",
)
"""Of these there is no warning either: each is close to a fault that is one."""


@pytest.mark.parametrize("name", RIGHT)
def test_a_right_program(name, recorded):
    """It ends as it would by itself, and no error is found."""
    ran = recorded(name)
    assert set(ran.exits.values()) == {0}, ran.output
    assert ran.verdict.internal == ()
    silent = name.partition("/")[2] in SILENT
    assert [f"{f.check}: {f.found}" for f in ran.verdict.findings if f.severity == "error" or silent] == []


SEPARATE = """
import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

dist.init_process_group("gloo")
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(8, 4), torch.nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
data = TensorDataset(torch.randn(32, 8, generator=torch.Generator().manual_seed(1)))
sampler = DistributedSampler(data)
for epoch in range(2):
    sampler.set_epoch(epoch)
    for (batch,) in DataLoader(data, 4, sampler=sampler):
        optimizer.zero_grad()
        loss = model(batch).square().mean()
        loss.backward()
        %s
        optimizer.step()
    dist.all_reduce(loss.detach())
dist.destroy_process_group()
"""
REDUCED = "[dist.all_reduce(p.grad) for p in model.parameters()]"
WITHOUT_THE_HEAD = "[dist.all_reduce(p.grad) for p in model[0].parameters()]"
CLIPPED_ALONE = f"{REDUCED}; dist.get_rank() or torch.nn.utils.clip_grad_norm_(model.parameters(), 1e-3)"


@pytest.mark.parametrize(("line", "expected"), [
    ("pass", ["reducer-coverage"]),
    (REDUCED, []),
    (WITHOUT_THE_HEAD, ["reducer-coverage"]),
    (CLIPPED_ALONE, ["gradient-sync"]),
], ids=["nothing", "reduced", "in-part", "clipped"])  # fmt: skip
def test_a_training_without_a_wrapper(line, expected, ask, tmp_path):
    """What it reduces itself is judged as a wrapper's parameters are; where it reduces nothing, that is said once."""
    script = tmp_path / "train.py"
    script.write_text(SEPARATE % line)
    told = json.loads(ask(script))
    assert set(told["exits"].values()) == {0}, told["output"]
    assert [f["check"] for f in told["findings"]] == expected
    assert not any("wrapper" in f["advice"] for f in told["findings"])
