"""Entries of the navigation that end in ``*`` and match no page are left out, without a warning."""

from __future__ import annotations

import fnmatch
import re
from typing import Any

from sphinx.application import Sphinx

ENTRY = re.compile(r"^[\w/-]+\*$\n", re.MULTILINE)


def _left_out(app: Sphinx, name: str, source: list[str]) -> None:
    if name == app.config.root_doc:
        pages = app.env.found_docs
        source[0] = ENTRY.sub(lambda entry: entry[0] if fnmatch.filter(pages, entry[0].strip()) else "", source[0])


def setup(app: Sphinx) -> dict[str, Any]:
    """Called by Sphinx."""
    app.connect("source-read", _left_out)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
