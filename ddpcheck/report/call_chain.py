"""How the program came to a line, in one line of text: from the script's main to it, libraries folded."""

from __future__ import annotations

from ddpcheck.vocabulary.model import CallSite

MOST = 5
"""Lines that are shown; of more, those in the middle are left out."""


def told(where: CallSite | None) -> str:
    """``main (train.py:80) → in lightning: Trainer.fit → step (model.py:30)``; empty where the line says it all.

    That the file's own level has called the function is so in most programs: a chain is shown where another function
    has called it, another file or a library.
    """
    if where is None:
        return ""
    chain = where.chain
    shown = [one for one in chain if one.function != "<module>" or one.through or one is where]
    if len(shown) < 2 and not any(one.through or one.file != where.file for one in shown):
        return ""
    parts: list[str] = []
    for one in shown:
        name = "" if one.function == "<module>" else f"{one.function} "
        place = f"{one.file}:{one.line}"
        parts.append(f"{name}({place})" if name else place)
        parts += [f"in {library}" for library in one.through[:1]]  # it may well use others
    if len(parts) > MOST:
        parts = [parts[0], "…", *parts[2 - MOST :]]
    return " → ".join(parts) if len(parts) > 1 else ""
