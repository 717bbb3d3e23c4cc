"""What a rank writes down over 10,000 steps of a model with 1,000 parameters: within the limit, and nothing left out.

    python -m tests.soak.evidence_size
    python -m tests.soak.evidence_size --steps 300 --way fsdp2

Prints a line for each file, and exits with 1 where one is larger than the limit, or has had to leave records out.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

from ddpcheck.evidence import HEADER, OVER, Reader, frame
from ddpcheck.run.own_options import EVIDENCE_LIMIT

PROGRAM = Path(__file__).with_name("thousand_parameters.py")


def main() -> int:
    parser = argparse.ArgumentParser(description="What ranks write down over many steps.")
    parser.add_argument("--steps", type=int, default=10_000)
    parser.add_argument("--way", choices=("ddp", "fsdp2"), action="append")
    options = parser.parse_args()
    return max(_of(way, options.steps) for way in options.way or ("ddp", "fsdp2"))


def _of(way: str, steps: int) -> int:
    worst = 0
    with tempfile.TemporaryDirectory(prefix="evidence-") as folder:
        command = [sys.executable, "-m", "ddpcheck.cli", "run", "--standalone", "--nproc-per-node", "2"]
        command += ["--evidence", folder, str(PROGRAM), way, str(steps)]
        ran = subprocess.run(command, capture_output=True, text=True, check=False)
        files = [path for path in Path(folder).rglob("*.evidence") if path.stat().st_size > 1 << 16]
        if len(files) != 2:
            print(f"{way}: {len(files)} files of ranks; {ran.stderr[-500:]}")
            return 1
        for path in sorted(files):
            data = path.read_bytes()
            kinds: Counter[str] = Counter()
            for record in Reader().feed(data[len(HEADER) + 1 :]):
                kinds[type(record).__name__] += len(frame(record))
            status = data[len(HEADER) : len(HEADER) + 1]
            most = ", ".join(f"{kind} {size / 1e6:.2f}" for kind, size in kinds.most_common(6))
            whole = "all of it" if status == OVER else f"not all of it ({status!r})"
            print(f"{way}, {steps} steps: {len(data) / 1e6:.1f} MB of {EVIDENCE_LIMIT}, {whole}; MB: {most}")
            worst |= status != OVER or len(data) > EVIDENCE_LIMIT << 20
    return worst


if __name__ == "__main__":
    sys.exit(main())
