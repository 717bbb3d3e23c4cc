"""Begins to watch in every interpreter of a script that ``ddpcheck run`` follows, then gives way to the site's own."""

import os
import sys


def _begin() -> None:
    here = os.path.dirname(os.path.abspath(__file__))
    sys.path[:] = [entry for entry in sys.path if os.path.abspath(entry or ".") != here]
    # The environment's own module of this name runs as it would have.
    mine = sys.modules.pop("sitecustomize", None)
    try:
        import sitecustomize  # type: ignore[import-not-found,unused-ignore]  # noqa: F401
    except ImportError:
        if mine is not None:
            sys.modules["sitecustomize"] = mine
    if os.environ.get("DDPCHECK_EVIDENCE"):
        try:
            from ddpcheck.observe import following
        except ImportError:  # another environment's interpreter
            return
        following.begin()


_begin()
