"""The navigation takes pages in as they come.

An entry that ends in ``*`` and matches no page is left out, without a warning; ``rest*`` stands for the pages of the
top folder that no other entry names.
"""

from __future__ import annotations

import fnmatch
import re
from typing import Any

from sphinx.application import Sphinx

ENTRY = re.compile(r"^(?:[^<\n]+<)?([\w/-]+\*?)>?$", re.MULTILINE)
TREE = re.compile(r"```\{toctree\}.*?```", re.DOTALL)
REST = "rest*"


def navigation(text: str, pages: set[str], root: str) -> str:
    """The start page with the entries of its navigation filled in, for the pages that there are."""
    named = {name for tree in TREE.findall(text) for name in ENTRY.findall(tree)}
    rest = sorted(
        page for page in pages if "/" not in page and page != root and not any(fnmatch.fnmatch(page, n) for n in named)
    )

    def filled(entry: re.Match[str]) -> str:
        if entry[0] == REST:
            return "\n".join(rest)
        return entry[0] if "*" not in entry[1] or fnmatch.filter(pages, entry[1]) else ""

    return TREE.sub(lambda tree: ENTRY.sub(filled, tree[0]), text)


def _filled(app: Sphinx, name: str, source: list[str]) -> None:
    if name == app.config.root_doc:
        source[0] = navigation(source[0], set(app.env.found_docs), name)


def setup(app: Sphinx) -> dict[str, Any]:
    """Called by Sphinx."""
    app.connect("source-read", _filled)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
