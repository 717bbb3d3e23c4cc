"""The fixes in the terms of training libraries: those of calls that part."""

from __future__ import annotations

from ddpcheck.judging.call_divergence_fixes import FIXES

__all__ = ["FIXES"]
