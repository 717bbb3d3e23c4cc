"""The whole suite on every twin, and on right trainers of other kinds, in one to four ranks: nothing may be found.

It takes a minute for each.

    python -m tests.conformance.sweep [--world-size N] [NAME …]

tries the twins of these names, or all of them, and exits with 1 where
something is found on one.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path

from ddpcheck.conformance.results import Results
from ddpcheck.conformance.suite import WORLD_SIZES, Suite
from ddpcheck.trainings.situations import LOSS_KINDS
from fixtures.trainers.faulty.registry import FAULTS
from fixtures.trainers.unusual import UNUSUAL
from tests.conformance.workshop import Workshop


def main() -> int:
    parser = argparse.ArgumentParser(description="The whole suite on every twin.")
    parser.add_argument("names", nargs="*")
    parser.add_argument("--world-size", type=int, action="append", help="in so many ranks alone")
    options = parser.parse_args()
    twins = {fault.twin.__name__: fault.twin for fault in FAULTS} | {one.__name__: one for one in UNUSUAL}
    suite = Suite(options.world_size or WORLD_SIZES, losses=LOSS_KINDS)
    found = 0
    with tempfile.TemporaryDirectory() as folder:
        workshop = Workshop(Path(folder))
        try:
            for name, twin in sorted(twins.items()):
                if options.names and name not in options.names:
                    continue
                begun = time.monotonic()
                results = [suite.result(workshop.runner(twin), check, size) for check, size in suite]
                told = Results(name, results, time.monotonic() - begun)
                print(told if told.of("violated") else f"{name}: {told.summary}", flush=True)
                found += len(told.of("violated"))
        finally:
            workshop.close()
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
