"""The figures of a bundle: what a training of 200 steps takes with and without ddpcheck, and what its looks cost.

    python -m tests.gpu.figures

One line of JSON for each, as it comes; where there is none, it says why.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path
from typing import Any

from tests.gpu import slow_down
from tests.gpu.sharing import Unshared, needed

STEPS = 200


def main() -> int:
    """Print all figures."""
    import torch

    there = torch.cuda.device_count()
    if not there:
        say(figure="slow-down", not_measured="torch sees no GPU")
        return 1
    failed = False
    for ranks in (1, 2):
        for arguments in ([], ["--channels-last"]):
            figure = {"figure": "slow-down", "ranks": ranks, "channels_last": bool(arguments), "steps": STEPS}
            with tempfile.TemporaryDirectory() as folder:
                try:
                    environment = needed("nccl", ranks)
                    found = slow_down.measure(Path(folder), STEPS, "nccl", environment, ranks, arguments=arguments)
                except Unshared as error:
                    say(**figure, not_measured=str(error))
                    continue
                except slow_down.NoFigure as error:
                    failed = True
                    say(**figure, failed=str(error).splitlines()[-30:])
                    continue
            say(
                **figure,
                ratio=round(found.ratio, 4),
                milliseconds_alone=round(found.step_alone * 1000, 3),
                milliseconds_watched=round(found.step_watched * 1000, 3),
                memory_alone=found.memory_alone,
                memory_watched=found.memory_watched,
                parameters=found.parameters,
            )
            for one in found.costs or [{"looks": slow_down.NOT_MEASURED}]:
                say(figure="looks", channels_last=bool(arguments), ranks=ranks, **one)
    return int(failed)


def say(**told: Any) -> None:
    """One line."""
    print(json.dumps(told), flush=True)


if __name__ == "__main__":
    sys.exit(main())
