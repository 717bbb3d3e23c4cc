"""The user's pytest session as plain data: what a session in another process needs to be the same."""

from __future__ import annotations

import contextlib
import os
import uuid
from types import SimpleNamespace
from typing import Any

import pytest

_NOT_FOR_RANKS: dict[str, Any] = {
    # What selects, distributes, writes or asks is done once, by the user's session.
    "capture": "no",
    "collectonly": False,
    "usepdb": False,
    "xmlpath": None,
    "log_file": os.devnull,  # which outranks the ini file: each session opens the file anew
    "lf": False,
    "failedfirst": False,
    "stepwise": False,
    "stepwise_skip": False,
    "newfirst": False,
    "keyword": "",
    "markexpr": "",
    "deselect": None,
    "maxfail": 0,
    "pyargs": False,
    "numprocesses": None,
    "dist": "no",
    "tx": [],
    "distload": False,
    "cov_source": [],
    "no_cov": True,
}


NO_TERMINAL = ("no:terminal", "no:sugar")
"""Who writes to the terminal: pytest itself, and pytest-sugar, which fails where it finds nobody to replace."""


def options_for_ranks(config: pytest.Config) -> dict[str, Any]:
    """The options of this session as plain data, without those that only the user's session may act on."""
    options = vars(config.option)
    kept = {name: value for name, value in options.items() if _is_portable(value)}
    kept.update((name, value) for name, value in _NOT_FOR_RANKS.items() if name in options)
    kept["plugins"] = [*(kept.get("plugins") or []), *NO_TERMINAL]
    kept |= {"rootdir": config.rootpath, "inifilename": config.inipath}  # pytest finds them by all of its arguments
    return _portable(kept)  # type: ignore[no-any-return]


def workerinput_for_ranks(config: pytest.Config) -> dict[str, Any]:
    """What plugins tell their workers: this worker's own, or what they would tell one."""
    inherited = getattr(config, "workerinput", None)
    if inherited is not None:
        return _portable(inherited)  # type: ignore[no-any-return]
    told: dict[str, Any] = {"workerid": "master", "workercount": 1, "testrunuid": uuid.uuid4().hex}
    node = SimpleNamespace(config=config, workerinput=told, gateway=SimpleNamespace(id="master"))
    hook = getattr(config.hook, "pytest_configure_node", None)  # pytest-xdist's, where it is installed
    for implementation in hook.get_hookimpls() if hook is not None else ():
        # Each may expect a session that is really distributed, and need not be heeded then.
        with contextlib.suppress(Exception):
            implementation.function(node)
    return _portable(told)  # type: ignore[no-any-return]


def _is_portable(value: Any) -> bool:
    if isinstance(value, (list, tuple)):
        return all(_is_portable(v) for v in value)
    if isinstance(value, dict):
        return all(isinstance(k, str) and _is_portable(v) for k, v in value.items())
    return value is None or isinstance(value, (bool, int, float, str, os.PathLike))


def _portable(value: Any) -> Any:
    """The same as plain data; what is no plain data is left out."""
    if isinstance(value, dict):
        return {k: _portable(v) for k, v in value.items() if _is_portable(v)}
    if isinstance(value, (list, tuple)):
        return [_portable(v) for v in value]
    return os.fspath(value) if isinstance(value, os.PathLike) else value
