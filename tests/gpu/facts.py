"""What a run of the tests on GPUs was on, and the page about it that is kept beside docs/gpu/README.md."""

from __future__ import annotations

import datetime
import json
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]

ASK = """
import json, platform, torch
from ddpcheck.gpus.allotment import version_text
from ddpcheck.gpus.gpu_inventory import look, nccl_version
print(json.dumps({
    "gpus": [gpu.name for gpu in look().gpus],
    "nccl": version_text(nccl_version()) or "none",
    "torch": torch.__version__,
    "cuda": torch.version.cuda or "none",
    "python": platform.python_version(),
}))
"""

UNKNOWN = "unknown"


class Facts(NamedTuple):
    """What a run was on."""

    date: str
    gpus: tuple[str, ...]
    driver: str
    torch: str
    cuda: str
    nccl: str
    python: str
    commit: str


def file_name(facts: Facts) -> str:
    """``2026-01-31-nvidia-h100-80gb.md``: the date and the first GPU, in letters that any file system takes."""
    gpu = re.sub(r"[^a-z0-9]+", "-", facts.gpus[0].lower()).strip("-")
    return f"{facts.date}-{gpu}.md"


def summary(output: str) -> str:
    """What pytest printed, from its summaries on: colours, progress and the paths of this machine taken out."""
    plain = re.sub(r"\x1b\[[0-9;]*m", "", output).replace(str(ROOT) + "/", "")
    lines = plain.rstrip().splitlines()
    heads = (
        "= FAILURES =",
        "= ERRORS =",
        "- invariants, as ",
        "- GPUs -",
        "= short test summary info =",
        "= warnings summary =",
    )
    begin = next((n for n, line in enumerate(lines) if any(head in line for head in heads)), len(lines) - 1)
    return "\n".join(lines[max(begin, 0) :])


def page(facts: Facts, arguments: Sequence[str], output: str, code: int | None) -> str:
    """The page that is kept."""
    names = dict.fromkeys(facts.gpus)
    gpus = ", ".join(f"{facts.gpus.count(name)} x {name}" for name in names)
    rows = {
        "date": facts.date,
        "GPUs": gpus,
        "driver": facts.driver,
        "torch": f"{facts.torch} (CUDA {facts.cuda})",
        "NCCL": facts.nccl,
        "Python": facts.python,
        "commit": facts.commit,
    }
    table = "\n".join(f"| {name} | {value} |" for name, value in rows.items())
    how = " ".join(["pytest", *arguments])
    ended = "pytest did not end by itself" if code is None else f"pytest ended with exit code {code}"
    verdict = "All of them passed or were skipped." if code == 0 else f"{ended}."
    return (
        f"# The tests on {gpus}, {facts.date}\n\n| | |\n|---|---|\n{table}\n\n`{how}`. {verdict}\n\n"
        f"```text\n{summary(output)}\n```\n"
    )


def said(*command: str) -> str:
    """What a program prints; ``unknown`` where it cannot, or not within two minutes."""
    try:
        run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120, check=True)
    except (OSError, subprocess.SubprocessError):
        return UNKNOWN
    return run.stdout.strip() or UNKNOWN


def gather() -> Facts:
    """Ask the machine, each part in a process of its own: this one touches no GPU. What cannot be had is unknown."""
    try:
        asked = json.loads(said(sys.executable, "-c", ASK).splitlines()[-1])
    except ValueError:
        asked = {}
    driver = said("nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader").splitlines()[0]
    return Facts(
        date=datetime.date.today().isoformat(),
        gpus=tuple(asked.get("gpus", ())),
        driver=driver,
        torch=asked.get("torch", UNKNOWN),
        cuda=asked.get("cuda", UNKNOWN),
        nccl=asked.get("nccl", UNKNOWN),
        python=asked.get("python", UNKNOWN),
        commit=said("git", "describe", "--always", "--dirty"),
    )
