"""Links to files: mentions of pages (``docs/run.md``) lead there, and whole HTML files of docs/pages are opened.

Those are copied as they are; by itself, Sphinx has them downloaded.
"""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx import addnodes
from sphinx.application import Sphinx

FOLDER = "pages"


CODE = re.compile(r"(^```.*?^```$|`[^`\n]+`|^ {4}[^\n]*$)", re.MULTILINE | re.DOTALL)
MENTION = re.compile(r"(?<![\w/(\[])docs/([\w-]+)\.md|(?<!\])\(docs/([\w-]+)\.md\)")


def linked(text: str, depth: int) -> str:
    """The same text with its plain mentions of pages as links; `depth`: how many folders below docs it is."""

    def link(mention: re.Match[str]) -> str:
        page = mention[1] or mention[2]
        link = f"[{page}]({'../' * depth}{page}.md)"
        return link if mention[1] else f"({link})"

    parts = CODE.split(text)
    return "".join(part if number % 2 else MENTION.sub(link, part) for number, part in enumerate(parts))


def _mentioned(app: Sphinx, name: str, source: list[str]) -> None:
    source[0] = linked(source[0], name.count("/"))


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
    app.connect("source-read", _mentioned)
    app.connect("doctree-read", _opened, priority=100)
    app.connect("build-finished", _copied)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
