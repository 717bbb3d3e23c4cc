"""Prints docs/checks.md."""

from __future__ import annotations

import sys

from ddpcheck.explanations import as_document

if __name__ == "__main__":
    sys.stdout.write(as_document())
