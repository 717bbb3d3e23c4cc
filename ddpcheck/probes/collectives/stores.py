"""Keys of a store that a script sets, and waits for: an order between ranks beside that of the collectives."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch.distributed import distributed_c10d as c10d

from ddpcheck.evidence import Stored
from ddpcheck.probes.recording import recorder
from ddpcheck.probes.recording.patching import around


def watch() -> None:
    """Record from now on what is set and waited for by name."""
    around(c10d.Store, "set", _around_set)
    for name in ("wait", "get"):
        around(c10d.Store, name, _around_wait)


def _note(keys: Any, sets: bool) -> None:
    writer = recorder.current()
    for key in [keys] if isinstance(keys, str) else keys if isinstance(keys, (list, tuple)) else ():
        if writer is not None and isinstance(key, str):
            writer.write(Stored(**writer.next(), key=key[:200], sets=sets))


def _around_set(original: Callable[..., Any]) -> Callable[..., Any]:
    def set_(self: Any, *args: Any, **kwargs: Any) -> Any:
        # Before it: another rank may go on at once.
        _note(args[0] if args else kwargs.get("key"), sets=True)
        return original(self, *args, **kwargs)

    return set_


def _around_wait(original: Callable[..., Any]) -> Callable[..., Any]:
    def wait(self: Any, *args: Any, **kwargs: Any) -> Any:
        result = original(self, *args, **kwargs)
        _note(args[0] if args else kwargs.get("keys", kwargs.get("key")), sets=False)
        return result

    return wait
