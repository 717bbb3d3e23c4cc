"""Faults planted into right programs, one line or two each, and what is reported of them."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

RIGHT = Path(__file__).parents[2] / "fixtures" / "right"


class Planted(NamedTuple):
    """What is replaced in a program, and what is found then: the check and the ranks."""

    program: str
    ranks: int
    replaced: tuple[tuple[str, str], ...]
    expected: list[tuple[str, list[int]]]
    severity: str = "warning"


ALONG = "dist.all_reduce(p.grad, group=replicas[r % 2])"
IGNORE = 'DDP._set_params_and_buffers_to_ignore_for_model(net, ["expert.weight", "expert.bias"])\n'
STATE = 'state = {"weights": weights, "moments": moments}\n'
ON = "train(new, after, range(3, 6))"

BACK = "            torch._foreach_copy_(params, list(stack[: len(params)].unbind(0)))"
ROUNDS = "            each = -(-len(params) // world)\n"
LAST_ROUND_ALONE = """            each = len(params) // world
            for p in params[each * world :]:
                p.sub_(orthogonal(p.grad), alpha=group["lr"])
            params = params[: each * world]
"""

FAULTS = {
    "a layer that DiLoCo forgets": Planted(
        "diloco_flat",
        2,
        (
            ("for p in model.parameters()]", "for p in model[:2].parameters()]"),
            ("self.model.parameters(), strict=True)])", "self.model[:2].parameters(), strict=True)])"),
            ("zip(outer, self.model.parameters(), strict=True):", "zip(outer, self.model[:2].parameters()):"),
        ),
        [("parameter-sync", [0, 1])],
        "advisory",  # a head of each rank's own, on its own data, looks the same
    ),
    "experts reduced with other ones": Planted(
        "experts_of_two",
        4,
        ((ALONG, ALONG.replace("replicas[r % 2]", "exchange[r // 2]")),),
        [("reducer-coverage", [0, 1, 2, 3])],
    ),
    "a wrapper along the experts": Planted(
        "experts_of_two",
        4,
        (
            (IGNORE, ""),
            ("DDP(net)", "DDP(net, process_group=exchange[r // 2])"),
            (f"{ALONG}\n        p.grad /= 2", "pass"),
        ),
        [("initial-broadcast", [0, 1, 2, 3])],
    ),
    "an optimizer made anew": Planted(
        "resume_in_one_run",
        2,
        ((ON, f"after = torch.optim.AdamW(new.parameters(), lr=0.01)\n{ON}"),),
        [("checkpoint-load-complete", [0, 1])],
    ),
    "gradients that FSDP has reduced already": Planted(
        "hsdp",
        4,
        (
            (
                "backward()\n",
                "backward()\n    for p in model.parameters():\n"
                "        dist.all_reduce(p.grad.to_local(), group=mesh.get_group('replicate'))\n",
            ),
        ),
        [("reducer-coverage", [0, 1, 2, 3])],
    ),
    "gradients that DDP has reduced already": Planted(
        "ddp_and_no_sync_reduced_by_hand",
        2,
        (("with model.no_sync():", "if True:"),),
        [("reducer-coverage", [0, 1])],
    ),
    "an optimizer that nobody zeroes": Planted(
        "pipeline_optimizer_for_each_stage",
        2,
        (("in optimizers:\n        optimizer.zero_grad", "in optimizers[:1]:\n        optimizer.zero_grad"),),
        [("accumulation-window", [0, 1])],
    ),
    "an overflow that one stage knows of": Planted(
        "pipeline_scaled",
        2,
        (("    dist.all_reduce(overflow, dist.ReduceOp.MAX)\n", ""),),
        [("optimizer-sync", [0, 1])],
    ),
    "a mean for each micro-batch of a schedule": Planted(
        "pipeline_unequal_labels",
        2,
        ((', reduction="sum") / valid', ")"), ("scale_grads=False", "scale_grads=True")),
        [("token-weight", [1])],
    ),
    "a stage that zeroes its gradients in each micro-batch": Planted(
        "pipeline_zeroed_once",
        2,
        (("                h = net(x)\n", "                optimizer.zero_grad()\n                h = net(x)\n"),),
        [("accumulation-window", [0])],
    ),
    "a bias of all experts from a rank's own counts": Planted(
        "experts_balanced_by_bias",
        2,
        (("    dist.all_reduce(net[1].sent)\n", ""),),
        [("buffer-sync", [1])],
    ),
    "gradients that nobody adds up along a dimension of the mesh": Planted(
        "sequence_summed_beside_fsdp",
        4,
        (('dist.all_reduce(p.grad.to_local(), dist.ReduceOp.SUM, mesh.get_group("sp"))', "pass"),),
        [("reducer-coverage", [0, 1, 2, 3])],
        "advisory",
    ),
    "a table that each end of a pipeline draws for itself": Planted(
        "pipeline_ends_in_other_places",
        2,
        (("dist.broadcast(table.weight.data, 0)\n", ""),),
        [("tied-parameters", [0, 1])],
    ),
    "a second stage that no optimizer has": Planted(
        "pipeline_interleaved",
        2,
        (("for part in parts for p", "for part in parts[:1] for p"),),
        [("optimizer-coverage", [0, 1])],
    ),
    "gradients that a schedule divides in each part of a window": Planted(
        "pipeline_evaluated_between",
        2,
        (("scale_grads=False", "scale_grads=True"), ("(MICRO * HALVES)", "HALVES")),
        [("accumulation-window", [0, 1])],
    ),
    "a last window divided by the size of whole ones": Planted(
        "last_window_of_its_own_size",
        2,
        ((" / accumulation).", " / ACCUMULATE)."),),
        [("token-weight", [0, 1])],
    ),
    "a last window that is not scaled up": Planted(
        "last_window_scaled_up",
        2,
        (("                p.grad.mul_(ACCUMULATE / taken)", "                pass"),),
        [("token-weight", [0, 1])],
    ),
    "a position that counts what one rank has read": Planted(
        "position_resumed",
        2,
        (("5 * BATCH * dist.get_world_size()", "5 * BATCH"),),
        [("shard-partition", [0, 1])],
    ),
    "an average that no parameter takes": Planted(
        "local_sgd_flat",
        2,
        (("vector_to_parameters(flat / dist.get_world_size(), model.parameters())", "flat /= dist.get_world_size()"),),
        [("parameter-sync", [0, 1])],
    ),
    "gradients of means that are averaged": Planted(
        "gradients_weighted_by_tokens",
        2,
        (("p.grad *= share", "p.grad /= dist.get_world_size()"),),
        [("token-weight", [0, 1])],
    ),
    "a window divided by its last micro-batch": Planted(
        "window_divided_by_all_tokens",
        2,
        (("tokens += number", "tokens = torch.tensor(float(number))"),),
        [("token-weight", [0, 1])],
    ),
    "a clip by the largest norm of a part": Planted(
        "norms_gathered",
        4,
        (("torch.stack(squares).sum()", "torch.stack(squares).max()"),),
        [("clip-norm", [0, 1, 2, 3])],
        "error",
    ),
    "shares that nobody has": Planted(
        "norms_gathered",
        4,
        (("num_replicas=mesh.size()", "num_replicas=dist.get_world_size()"),),
        [("shard-partition", [0, 1, 2, 3])],
        "error",
    ),
    "copies along the second dimension in the norm": Planted(
        "norm_along_both_dimensions",
        4,
        ((' if mesh["tp"].get_local_rank() == 0 or is_cut_along_tp(g)]', "]"),),
        [("clip-norm", [0, 1, 2, 3])],
        "error",
    ),
    "stepped parameters that one rank does not copy back": Planted(
        "muon_stacked_buffers",
        4,
        ((BACK, f"            if rank != 1:\n    {BACK}"),),
        [("parameter-sync", [1])],
        "error",
    ),
    "a last round of owners that is left out": Planted(
        "muon_stacked_buffers",
        4,
        ((ROUNDS, LAST_ROUND_ALONE), ('= group["params"], rank', '= group["params"][: each * world], rank')),
        [("parameter-sync", [0, 1, 2, 3])],
    ),
}


def planted(fault: Planted) -> str:
    """The text of a program with its fault."""
    text = (RIGHT / f"{fault.program}.py").read_text()
    for before, after in fault.replaced:
        assert before in text, f"{fault.program} has no {before!r}"
        text = text.replace(before, after)
    return text
