"""To which module of the model a parameter or buffer belongs, and where that comes from: as text, and as data."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ddpcheck.vocabulary.model import CallSite, Finding, ModelPart


def told(finding: Finding) -> str:
    """``layers.3.attn.q (Linear, in Attention), set by model.py:41 in __init__``; empty where that says nothing new."""
    part = finding.module
    if part is None:
        return ""
    name = part.path or f"the {part.kind}"
    classes = [part.kind] if part.path and part.kind else []
    classes += [f"in {part.within}"] if part.within else []
    said = f"{name} ({', '.join(classes)})" if classes else name
    if part.set_by is not None:
        return f"{said}, set by {_way(part.set_by)}"
    if part.defined is not None:
        return f"{said}; {part.within or part.kind}'s constructor is at {part.defined.file}:{part.defined.line}"
    return said if classes else ""


def line(finding: Finding) -> CallSite | None:
    """The line that names the parameter's module: that of the constructor, where a helper has made it for that."""
    part = finding.module
    return part.set_by.chain[0] if part is not None and part.set_by is not None else None


def data(part: ModelPart, lines: Mapping[str, str]) -> dict[str, Any]:
    """As the JSON has it, with the texts of lines that are known."""
    set_by = part.set_by.chain if part.set_by is not None else ()
    return {
        "path": part.path,
        "class": part.kind,
        "within": part.within or None,
        "set_by": [{**_place(one), "text": lines.get(f"{one.file}:{one.line}", "")} for one in set_by],
        "defined": _place(part.defined) if part.defined is not None else None,
    }


def _place(where: CallSite) -> dict[str, Any]:
    return {"file": where.file, "line": where.line, "function": where.function}


def _way(where: CallSite) -> str:
    """The line, with those of the constructor's that have led to it."""
    if len(where.chain) == 1:
        return str(where)
    return " → ".join(f"{one.function} ({one.file}:{one.line})" for one in where.chain)
