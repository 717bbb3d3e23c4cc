"""Where a finding is in the repository: what code hosts can put it on is a path relative to the root."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Literal, NamedTuple
from urllib.parse import quote

from ddpcheck.vocabulary.model import CallSite, Finding

Service = Literal["github", "gitlab"]

_ROOTS = ("GITHUB_WORKSPACE", "CI_PROJECT_DIR")
"""The variables in which the services name the folder that the repository was checked out to."""

_INSTALLED = ("site-packages", "dist-packages")


def service(environment: Mapping[str, str]) -> Service | None:
    """The service whose job this is; None on a machine of the user's own."""
    if environment.get("GITHUB_ACTIONS") == "true":
        return "github"
    return "gitlab" if environment.get("GITLAB_CI") == "true" else None


class Place(NamedTuple):
    """A line that code hosts can show."""

    path: str
    """With slashes; relative to the root if it is ``inside``."""
    line: int
    inside: bool
    """The file is of the repository."""
    stands_in: bool
    """The finding has no line of its own, and the script's first one has to do."""


class Repository(NamedTuple):
    """The repository that a run belongs to."""

    root: str
    folder: str
    """The working directory of the ranks: relative files lie below it."""
    script: str = ""
    """The file that was run, as far as it is known."""

    def path_of(self, file: str) -> str | None:
        """The path of a file, relative to the root; None for one outside of it, and for installed libraries."""
        if not file or file.startswith("<"):
            return None
        whole = self.whole(file)
        for root in (os.path.normpath(self.root), os.path.realpath(self.root)):
            for one in (whole, os.path.realpath(whole)):
                below = os.path.relpath(one, root)
                parts = below.split(os.sep)
                if parts[0] not in (os.pardir, os.curdir) and not set(parts) & set(_INSTALLED):
                    return below
        return None

    def whole(self, file: str) -> str:
        """The absolute path of a file."""
        return os.path.normpath(os.path.join(self.folder, file))

    def place_of(self, where: CallSite) -> Place:
        """Where a line is."""
        path = self.path_of(where.file)
        return Place(
            path=path if path is not None else self.whole(where.file),
            line=max(where.line, 1),
            inside=path is not None,
            stands_in=False,
        )

    def place(self, finding: Finding) -> Place:
        """Where a finding is to be shown by those who can show nothing without a line."""
        return self.place_of(finding.where) if finding.where is not None else self.place_of_script()

    def place_of_script(self) -> Place:
        """The first line of the script, for what has none."""
        script = CallSite(file=self.script or "unknown", line=1, function="")
        return self.place_of(script)._replace(stands_in=True)


def uri_path(path: str) -> str:
    """A path as it stands in a URI."""
    try:
        return quote(os.fsencode(path))
    except UnicodeEncodeError:  # no path that this file system could have
        return quote(path.encode("utf-8", "backslashreplace"))


def repository(folder: str, environment: Mapping[str, str], script: str = "") -> Repository:
    """The repository of a run whose ranks worked in a folder.

    In a job of a service its root is what was checked out there, wherever the
    ranks worked; elsewhere it is where git has its own, or the folder itself.
    """
    folder = os.path.abspath(folder or os.curdir)
    for variable in _ROOTS:
        if os.path.isabs(root := environment.get(variable, "")):
            return Repository(_checked_out(root, folder), folder, script)
    found = next((str(one) for one in (Path(folder), *Path(folder).parents) if (one / ".git").exists()), folder)
    return Repository(found, folder, script)


def _checked_out(root: str, folder: str) -> str:
    """A service's folder, or the one below it that a job has checked its repository out to."""
    if not os.path.exists(os.path.join(root, ".git")):
        top = os.path.realpath(root)
        for one in (Path(os.path.realpath(folder)), *Path(os.path.realpath(folder)).parents):
            if os.path.commonpath([top, one]) != top:
                break
            if (one / ".git").exists():
                return str(one)
    return root
