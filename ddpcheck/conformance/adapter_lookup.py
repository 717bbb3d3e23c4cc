"""How ranks find an adapter: it hangs on a test's function, or is imported by its name."""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import sys
from typing import Any

from ddpcheck.ranks.pytest_host import SUBJECT


def attach(test: Any, fit: Any) -> None:
    """Have the ranks of a test find this adapter."""
    setattr(test, SUBJECT, fit)
    if "ddpcheck.zygote.zygote" in sys.modules:
        # Ranks are forked from here, some hundred times for one trainer: what is imported now none of them imports
        # again. (The session itself stays without torch.)
        from ddpcheck.probes.all_probes import PROBES

        probes = [f"ddpcheck.probes.{name}" for name in PROBES]
        for name in ("ddpcheck.conformance.rank_training", "ddpcheck.conformance.oracle", *probes):
            with contextlib.suppress(ImportError):
                importlib.import_module(name)


def find(module: str, file: str, name: str) -> Any:
    """The adapter of this name, of a module, or of the file that was run as a script."""
    found: Any
    if file:
        # As multiprocessing calls it: what stands under `if __name__ == "__main__"` is not run again.
        spec = importlib.util.spec_from_file_location("__mp_main__", file)
        assert spec is not None
        assert spec.loader is not None
        found = importlib.util.module_from_spec(spec)
        sys.modules["__mp_main__"] = found
        spec.loader.exec_module(found)
    else:
        found = importlib.import_module(module)
    for part in name.split("."):
        found = getattr(found, part)
    return found
