"""Which rows of real faults the corpus is about, and why some have no program."""

from __future__ import annotations

ROWS = """
A1 A2 A5 A6 A8
B1 B2 B4 B6 B7 B9 B10 B11 B12 B13 B15 B16 B17 B20 B21
C1 C2 C3 C4 C5 C6 C7 C8 C9 C10 C11 C12 C13 C14 C15 C16 C17 C18
D2 D3 D4 D7 D11 D13 D14 D16 D17 D18 D19 D21 D22
E1 E3 E4 E5 E6 E7 E9 E10 E12 E13 E14 E16 E21 E22 E23 E24 E25 E26 E28 E29 E30 E32 E33
F2 F4 F6 F7 F8 F10 F11 F13 F14 F15 F16 F17 F18 F19 F20 F21
G2 G3 G6 G7 G8
H2 H4 H5 H6 H7 H9 H10 H11 H12
I1 I2 I3 I4 I5 I6 I7 I8 I9 I10 I11 I12
J1 J2 J3 J4 J5 J6
K1 K2 K3 K4 K5 K6
L1 L2 L5
M1
N2 N3
""".split()
"""Faults of distributed training, by family and number."""

_ORACLE = "all ranks agree: only a second run on the same data (gradient-oracle) shows it"
_METRIC = "all ranks agree: only one process on the same data (metric-oracle) shows it"
_RESUME = "takes a second, uninterrupted run to compare with (resume-equivalence)"
_GPU = "needs GPUs"
_HARNESS = "a fault of a test harness, not of a training script"

LEFT_OUT: dict[str, str] = {
    "B15": "not reproducible: with non-reentrant checkpointing the gradients agree on torch 2.13",
    **dict.fromkeys(("C1", "C2", "C3", "C4", "C5", "C6", "C8", "C9", "C10", "C11", "C12", "C13", "C14"), _ORACLE),
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
