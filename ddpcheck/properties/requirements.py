"""What properties need of hypothesis, and the sentence where it is not there."""

from __future__ import annotations

import re
import sys
import unittest
from typing import Any

OLDEST = (6, 131)
"""From here on an example is a sequence of typed choices, under the names that are used here."""

INSTALL = "pip install 'hypothesis>=6.131'"


def trouble(function: Any, cls: type | None) -> str:
    """Why a property, of a class or of none, cannot run in ranks; empty where it can."""
    hypothesis = sys.modules.get("hypothesis")
    version = str(getattr(hypothesis, "__version__", "0"))
    found = tuple(int(part) for part in re.findall(r"\d+", version)[:2])
    if found < OLDEST:
        return (
            f"@given on a ddp test needs hypothesis {'.'.join(map(str, OLDEST))} or newer, and this is {version}: "
            f"{INSTALL}. Without @given the test runs as it is."
        )
    machine = getattr(function, "_hypothesis_state_machine_class", None)
    if machine is not None:
        return (
            f"{machine.__name__}.TestCase draws other steps in every rank. Run the machine in a property instead: "
            f"@given(data=st.data()) def test(ddp, data): ddpcheck.run_state_machine({machine.__name__}, data)"
        )
    if issubclass(cls or object, unittest.TestCase):
        return "a property of a unittest.TestCase cannot run in ranks: write it as a function, or in a plain class."
    backend = getattr(function._hypothesis_internal_use_settings, "backend", "hypothesis")
    if not str(backend).startswith("hypothesis"):  # hypothesis' own draw plain values
        return (
            f"@settings(backend={backend!r}) draws values that cannot cross to the ranks: leave the backend of a ddp "
            "test as it is."
        )
    return ""
