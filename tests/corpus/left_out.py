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
}
"""Rows without a program, and the reason."""
