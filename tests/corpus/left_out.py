"""Which rows of real faults the corpus is about, and why some have no program."""

from __future__ import annotations

FAMILIES = {
    "A": (1, 2, 5, 6, 8),
    "B": (1, 2, 4, 6, 7, 9, 10, 11, 12, 13, 15, 16, 17, 20, 21),
    "C": (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18),
    "D": (2, 3, 4, 7, 11, 13, 14, 16, 17, 18, 19, 21, 22),
    "E": (1, 3, 4, 5, 6, 7, 9, 10, 12, 13, 14, 16, 21, 22, 23, 24, 25, 26, 28, 29, 30, 32, 33),
    "F": (2, 4, 6, 7, 8, 10, 11, 13, 14, 15, 16, 17, 18, 19, 20, 21),
    "G": (2, 3, 6, 7, 8),
    "H": (2, 4, 5, 6, 7, 9, 10, 11, 12),
    "I": (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12),
    "J": (1, 2, 3, 4, 5, 6),
    "K": (1, 2, 3, 4, 5, 6),
    "L": (1, 2, 5),
    "M": (1,),
    "N": (2, 3),
    "O": (1, 2, 4, 5, 7, 8, 9, 10, 14, 15),
    "P": (1, 3, 4, 5, 7, 8, 9, 11, 12, 14, 16, 17, 19),
    "Q": (1, 3, 4, 6, 7, 9, 11, 13, 14),
    "R": (1, 2, 3, 4, 5, 6, 8, 10, 13),
    "S": (2, 3, 5, 6, 7, 9, 10),
    "T": (1, 2, 3, 4, 7, 8, 10),
    "U": (1, 2, 4, 6, 7, 8, 10, 11, 12, 14, 15, 16, 18, 19, 21, 24),
    "V": (2, 3, 4, 6, 8, 10, 12, 13, 14, 15, 18, 19, 20),
    "W": (2, 4, 5, 6, 8, 9, 10, 12, 14, 15),
    "X": (2, 3, 4, 5, 6, 7, 8, 10, 11, 16, 17),
    "Y": (1, 2, 3, 7, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 25, 26, 27, 28, 29, 31, 32),
    "Z": (1, 2, 3, 4, 6),
}
"""Faults of distributed training: the numbers of each family."""

ROWS = [f"{family}{number}" for family, numbers in FAMILIES.items() for number in numbers]

_ORACLE = "all ranks agree: only a second run on the same data (gradient-oracle) shows it"
_METRIC = "all ranks agree: only one process on the same data (metric-oracle) shows it"
_RESUME = "takes a second, uninterrupted run to compare with (resume-equivalence)"
_GPU = "needs GPUs"
_HARNESS = "a fault of a test harness, not of a training script"

LEFT_OUT: dict[str, str] = {
    "B15": "not reproducible: with non-reentrant checkpointing the gradients agree on torch 2.13",
    "C8": "the loss is no mean of elements, whose weights token-weight could compare",
    "C10": "a factor in the backward of a gather: token-weight follows the loss as far as its elements",
    "C11": "disputed: what C1 does, and meant so",
    "C12": "the loss is another one, and not its weights: only a second run on the same data shows it",
    **dict.fromkeys(("C13", "C14"), _ORACLE),
    **dict.fromkeys(("C15", "C16"), _ORACLE),
    "C17": "a pipeline engine's own, and all ranks agree",
    "C18": "a sharding engine's own, and all ranks agree",
    "E21": _ORACLE,
    **dict.fromkeys(("F15", "F16", "F17"), _RESUME),
    "F10": _GPU,
    "H9": "not reproducible: torch 2.13 keeps the version counters of broadcast buffers",
    "H10": _GPU,
    **dict.fromkeys(("I1", "I2", "I3", "I4", "I5", "I6", "I7", "I8", "I10", "I12"), _METRIC),
    **dict.fromkeys(("J2", "J3", "J4", "J5", "J6"), _GPU),
    **dict.fromkeys(("K2", "K3"), _HARNESS),
    "U7": "nobody has found out why: a program would be a guess",
    "W5": _GPU,
    "W15": "not reproducible: FSDP with mixed precision and a compiled step assigns the right gradients on torch 2.13",
}
"""Rows without a program, and the reason."""

_ONE_MODEL = "the ranks agree, on another model than one process has: no fact of one run shows it"
_BY_HAND = "the parts are plain tensors that the program deals out itself: nobody says what they are parts of"
_LOGGED = "a number that is logged, and nothing else (metric-oracle): only one process on the same data shows it"
_MESH_NAMES = "an advisory: the names of a mesh's dimensions"

_FACTOR = "an advisory: each rank has as many elements, and the loss may be meant to count so many times as much"
_NORMS = "an advisory: norms that began as one number, and nothing says that the ranks hold copies of them"
_WINDOW = "an advisory: that a step takes several micro-batches is read in the name of what the loss is divided by"

MISSED: dict[str, str] = {
    "d17_sampler_not_shuffled": "an advisory: that training data are to be shuffled, which is a matter of taste",
    "h11_scale_from_local_batch": "an advisory: the names of attributes",
    "b11_no_sync_stops_early": "an advisory: the gradients are right, and reduced at every micro-batch",
    **dict.fromkeys(
        (
            "c01_loss_times_world_size",
            "c02_loss_reduced_before_backward",
            "c03_backward_of_the_mean_loss",
            "c09_contrastive_loss_scaled",
        ),
        _FACTOR,
    ),
    **dict.fromkeys(
        (
            "p03_hooks_before_engine",
            "p05_reduced_only_with_overlap",
            "p12_query_norm_of_local_heads",
        ),
        _NORMS,
    ),
    "p04_norms_of_pipeline_stages": "no fact says which ranks of a pipeline hold the same stage",
    **dict.fromkeys(("p11_gathered_tokens_sliced_back", "p17_key_norm_before_exchange"), _ONE_MODEL),
    "r13_encoder_averaged_over_its_own": "gradients that a program sends to another rank itself may be scaled there",
    "s05_raw_shards_of_shared_table": "the shards are stepped, and plain tensors that the program deals out itself: "
    "that a part of each is of one table, nobody says",
    "t08_count_reduced_in_place": _ONE_MODEL,
    "u06_shard_orthogonalised": "that a matrix must be whole where it is orthogonalised, nobody says: experts in a "
    "stack are rightly handled part by part",
    "u21_average_written_outside": "FSDP keeps gathered weights for forwards without gradients: that they are older "
    "than the shards shows in no public name",
    "u24_engine_not_updated": "a frozen copy may be meant to stay as it is, as a reference policy is",
    "v04_whole_gradient_counted_per_rank": "an advisory: every gradient counts equally often, and that the bound is a "
    "round number otherwise is all that tells",
    "v12_norm_of_one_partition": "the gradients are variables of an engine that steps without torch.optim",
    "v15_largest_gradient_of_own_shard": _LOGGED,
    **dict.fromkeys(("v18_whole_value_summed_again", "v19_tokens_counted_per_split_rank"), _LOGGED),
    "v20_channel_loss_by_own_labels": _LOGGED,
    **dict.fromkeys(("x02_peers_get_other_batches", "x04_stream_split_for_the_world"), _MESH_NAMES),
    **dict.fromkeys(("w02_steps_with_every_reduction", "w06_step_fused_into_backward"), _WINDOW),
    "w08_half_copy_made_by_teacher": "an advisory: that a loss may be no function of a bias is read in its name",
    "x10_positions_of_missing_ranks": _RESUME,
    "x17_own_remainder_of_the_shuffle": "a stream without end has no number of batches to compare",
    "y02_step_read_when_the_save_ends": "an advisory: the numbers in names of files",
    "y07_state_taken_before_padding": "the shards are plain tensors that no model holds and no optimizer steps: that "
    "the saved ones are no longer those in use, nobody says",
    "y13_fused_halves_in_wrong_order": "that a matrix has two halves only its forward knows: joined as they are, or "
    "half by half, the parts are all there, and once",
    "y14_fused_weight_split_as_local_halves": "the engine's parts are plain tensors, and which rows of the fused "
    "weight they should be only its forward knows",
    "y22_shards_in_order_of_their_names": "the files are read in the order of their names in right programs, too, "
    "which then put each part in its place: what becomes of the parts after the load is not looked at",
    "y26_old_marker_of_completion": "an advisory: a word in the name of a file",
}
"""Programs whose fault is not found, and why."""
