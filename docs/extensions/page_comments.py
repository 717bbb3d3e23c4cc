"""The comments by which tests run a page's code (tests/site/page_code.py) are left out of the site."""

from __future__ import annotations

import re
from typing import Any

from sphinx.application import Sphinx

COMMENT = re.compile(r"^<!-- (?:file|exit|shows|in|run by|not run)(?:: .+?)? -->\n", re.MULTILINE)


def _without(app: Sphinx, name: str, source: list[str]) -> None:
    source[0] = COMMENT.sub("", source[0])


def setup(app: Sphinx) -> dict[str, Any]:
    """Called by Sphinx."""
    app.connect("source-read", _without)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
