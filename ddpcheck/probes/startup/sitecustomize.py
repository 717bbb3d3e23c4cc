"""Begins to watch in every interpreter of a script that ``ddpcheck run`` follows, then gives way to the site's own."""

import os
import sys


def _begin() -> None:
    sys.path[:] = [entry for entry in sys.path if entry != os.path.dirname(__file__)]
    # The environment's own module of this name runs as it would have, and fails as it would have.
    mine = sys.modules.pop("sitecustomize", None)
    try:
        import sitecustomize  # type: ignore[import-not-found,unused-ignore]  # noqa: F401
    except ImportError as error:
        if error.name != "sitecustomize":
            raise
    finally:
        if mine is not None:
            sys.modules.setdefault("sitecustomize", mine)
        if os.environ.get("DDPCHECK_EVIDENCE"):
            _follow()


def _follow() -> None:
    try:
        from ddpcheck.probes import follow_program

        follow_program.begin()
    except Exception:  # another environment's interpreter: it runs without us
        return


_begin()
