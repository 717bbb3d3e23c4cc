"""Warnings that are raised through a probe name the line that they name without it.

``warnings.warn(…, stacklevel=2)`` counts frames, and a probe adds some of its
own. Python counts none whose file has ``importlib`` and ``_bootstrap`` in its
name, so that an import is warned of where it stands; loggers know them by the
same words. The probes' code is given such a name for their own file, by way of
a folder that is called so: what reads the file to show a line finds it.
"""

from __future__ import annotations

import os
import sys
from types import CodeType

from ddpcheck.probes.recording import compiler_frames
from ddpcheck.vocabulary.own_code import PROBES

_BY_WAY_OF = os.path.join(PROBES, "importlib_bootstrap", os.pardir, "")


def rename() -> None:
    """Give the code of all probes that have been imported a name that is not counted."""
    for name, module in list(sys.modules.items()):
        if name.startswith("ddpcheck.probes."):
            for function in compiler_frames.functions_of(vars(module)):
                function.__code__ = _renamed(function.__code__)


def _renamed(code: CodeType) -> CodeType:
    below = code.co_filename.removeprefix(PROBES)
    if below == code.co_filename or below.startswith("importlib_bootstrap"):
        return code
    inner = tuple(_renamed(one) if isinstance(one, CodeType) else one for one in code.co_consts)
    return code.replace(co_filename=_BY_WAY_OF + below, co_consts=inner)
