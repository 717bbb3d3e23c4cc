"""A user's function that has raised on some rank, told once for all ranks, before anything else is judged."""

from __future__ import annotations

import re
from collections.abc import Sequence

from ddpcheck.evidence.training_state import Failure
from ddpcheck.vocabulary.model import Finding
from ddpcheck.vocabulary.wording import ranks_text

CHECKS = {
    "build": "rank-failure",
    "step": "rank-failure",
    "save": "rank-failure",
    "load": "checkpoint-load-complete",
}
_MISMATCH = re.compile(r"Error\(s\) in loading state_dict for (?P<module>\S+?):")
_MISSING = re.compile(r'Missing key\(s\) in state_dict: "(?P<key>[^"]+)"')
_FOREIGN = re.compile(r'Unexpected key\(s\) in state_dict: "(?P<key>[^"]+)"')
_SIZE = re.compile(r"size mismatch for (?P<key>[^\s:]+): (?P<how>[^\n]+?)(\.\s|\.$|\n|$)")
_ANSI = re.compile("\x1b\\[[0-9;]*m")
_ADVICE = {
    "": "Look at the line that raised; the other ranks were stopped with this one.",
    "not there": "Save it before, on one rank, and let all ranks meet (dist.barrier()) before the load.",
    "empty": "Take an older checkpoint; save beside the file, then os.replace it, and a kill leaves the old one.",
    "cut off": "Take an older checkpoint; save beside the file, then os.replace it, and a kill leaves the old one.",
    "not a checkpoint": "Give the path of a file that torch.save has written.",
    "refused": "Save plain data (tensors, numbers, texts, dicts), or load with weights_only=False what you trust.",
    "newer": "Load it with the torch that wrote it or a newer one, or save it again in the older format.",
    "mismatch": "Build the model as it was when its state was saved, or load the part that fits by its keys.",
}


def judge(failures: Sequence[Failure | None]) -> tuple[Finding, ...]:
    """One finding for what the ranks' calls of one function have raised; none where none did."""
    raised = [(rank, f) for rank, f in enumerate(failures) if f is not None]
    own = [(rank, f) for rank, f in raised if not f.reaction] or raised
    if not own:
        return ()
    _, first = own[0]
    kind = "mismatch" if _MISMATCH.search(first.message) else first.state
    subject = f"file {first.file}" if first.file else f"{first.doing}()"
    return (
        Finding(
            check=CHECKS[first.doing],
            rule=_rule(first.doing, kind),
            ranks=tuple(rank for rank, _ in own),
            subject=subject,
            expected=f"{first.doing}() to end on every rank",
            found=f"{_found(first)} on {ranks_text(rank for rank, _ in own)}",
            cause=_cause(first),
            advice=_ADVICE[kind],
            where=first.where,
            proof=tuple((rank, f.where) for rank, f in own[1:] if f.where is not None and f.where != first.where),
        ),
    )


def _rule(doing: str, kind: str) -> str:
    if doing != "load":
        return "failed-user-function"
    return "state-dict-mismatch" if kind == "mismatch" else "failed-load"


def _found(failure: Failure) -> str:
    plain = _ANSI.sub("", failure.message)
    told = _first_difference(plain) or " ".join(plain.split())[:300].rstrip(".")
    return f"{failure.kind}: {told}" if told else failure.kind


def _first_difference(message: str) -> str:
    """The first key in which a checkpoint and a module differ, from torch's long message."""
    head = _MISMATCH.search(message)
    if head is None:
        return ""
    places = []
    for pattern, words in ((_MISSING, "has no key {key!r}"), (_FOREIGN, "has a key {key!r} that the module has not")):
        if found := pattern.search(message):
            places.append(f"the checkpoint {words.format(key=found['key'])}")
    if found := _SIZE.search(message):
        places.append(f"{found['key']} is of another size: {found['how'].strip()}")
    return f"loading into {head['module']}: " + "; ".join(places) if places else ""


def _cause(failure: Failure) -> str:
    causes = {
        "not there": "there is no such file",
        "empty": "the file is empty: a save was ended before its first byte was written",
        "cut off": "the file is cut off: a save was ended in the midst of it, or a copy was",
        "not a checkpoint": "it is no file that torch.save has written",
        "refused": "torch.load takes plain data alone where weights_only is true, as it is by default",
        "newer": "it was written in a newer format than this torch reads",
    }
    if "'module." in failure.message or '"module.' in failure.message:
        return "the keys on one side begin with 'module.', which DistributedDataParallel puts there"
    return causes.get(failure.state, "")
