"""torch's own harnesses around the same work, and the program that times their tests.

    python peers.py Spawned 2 1        one test of MultiProcessTestCase, in two ranks
    python peers.py Continuous 2 20    twenty of MultiProcContinuousTest

Writes one line of JSON for each test: its seconds from before ``setUp`` to
after ``tearDown``, and whether it passed.
"""

from __future__ import annotations

import json
import os
import sys
import time
import unittest

RANKS = "BENCH_RANKS"
TESTS = "BENCH_TESTS"


class Clock(unittest.TestResult):
    def startTest(self, test: unittest.TestCase) -> None:
        super().startTest(test)
        self.begun, self.bad = time.monotonic(), len(self.errors) + len(self.failures) + len(self.skipped)

    def stopTest(self, test: unittest.TestCase) -> None:
        seconds = time.monotonic() - self.begun
        passed = len(self.errors) + len(self.failures) + len(self.skipped) == self.bad
        told = "" if passed else [text for _, text in self.errors + self.failures + self.skipped][-1]
        print("TIMED " + json.dumps({"seconds": seconds, "passed": passed, "text": told[-300:]}), flush=True)
        super().stopTest(test)


def main(harness: str, ranks: str, tests: str) -> None:
    os.environ[RANKS], os.environ[TESTS] = ranks, tests
    import peer_cases

    suite = unittest.defaultTestLoader.loadTestsFromTestCase(getattr(peer_cases, harness))
    suite.run(Clock())


if __name__ == "__main__":
    main(*sys.argv[1:])
