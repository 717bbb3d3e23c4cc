"""Links to whole HTML files in docs/pages: copied as they are, and opened, not downloaded."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx import addnodes
from sphinx.application import Sphinx

FOLDER = "pages"


def _opened(app: Sphinx, tree: nodes.document) -> None:
    for link in list(tree.findall(addnodes.download_reference)):
        target = str(link.get("reftarget", ""))
        if target.startswith(f"{FOLDER}/") and target.endswith(".html"):
            if not (Path(app.srcdir) / target).is_file():
                continue  # Sphinx says so
            depth = app.env.docname.count("/")
            address = "../" * depth + target
            opened = nodes.reference("", "", *link.children, refuri=address, internal=True)
            link.replace_self(opened)


def _copied(app: Sphinx, failed: Exception | None) -> None:
    source = Path(app.srcdir) / FOLDER
    if failed is None and source.is_dir() and app.builder.format == "html":
        shutil.copytree(source, Path(app.outdir) / FOLDER, dirs_exist_ok=True)


def setup(app: Sphinx) -> dict[str, Any]:
    """Called by Sphinx."""
    app.connect("doctree-read", _opened, priority=100)
    app.connect("build-finished", _copied)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
