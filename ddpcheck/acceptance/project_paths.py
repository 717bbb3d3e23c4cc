"""Files under the names that stay the same from run to run, and from machine to machine."""

from __future__ import annotations

import os

_INSTALLED = f"{os.sep}site-packages{os.sep}"


def in_project(file: str, folder: str, base: str) -> str:
    """A file of a finding as seen from the project's folder; one of an installed package from ``site-packages`` on.

    ``folder`` is the working directory of the ranks, to which the finding's
    own path is relative, and ``base`` the project's. What lies elsewhere has
    its whole path.
    """
    if not file:
        return ""
    path = os.path.realpath(os.path.join(folder, file))
    _, found, below = path.rpartition(_INSTALLED)
    if found:
        return f"site-packages/{below}"
    relative = os.path.relpath(path, os.path.realpath(base))
    return (path if relative.startswith(os.pardir) else relative).replace(os.sep, "/")
