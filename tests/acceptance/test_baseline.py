"""The file of findings that were there before: what is the same in another run, what is new, and how it is written."""

from __future__ import annotations

import json

import pytest
from msgspec.structs import replace

from ddpcheck.acceptance import baseline as baselines
from ddpcheck.acceptance.accepted_verdict import new_baseline, with_accepted
from ddpcheck.acceptance.baseline import Baseline, Unreadable
from ddpcheck.acceptance.rules import Rules
from tests.acceptance.written_findings import CODE, WARNING, entry, finding, ignore, sites, verdict


def rules(folder, *entries):
    return Rules(base=str(folder), baseline=Baseline(path=str(folder / "baseline.json"), entries=entries))


def new(folder, entries, *findings, **more):
    """The findings that count, where these entries were there before."""
    return list(with_accepted(verdict(folder, *findings, **more), rules(folder, *entries)).findings)


OTHERWISE = {
    "another rank, step and count": finding(ranks=(3, 5), step=70, count=12),
    "a line that was moved": finding(line=50),
    "words of another world size": finding(found="w to differ on 7 of 8 ranks", cause="rank 7 has clipped it"),
    "what follows from it": finding(also=("parameter-sync",), links=("optimizer 4",)),
    "a warning now": finding(severity="warning"),
}


@pytest.mark.parametrize("same", OTHERWISE.values(), ids=OTHERWISE)
def test_what_is_the_same_in_another_run(tmp_path, same):
    """Neither line numbers nor ranks, steps and counts say which finding it is."""
    assert new(tmp_path, [entry()], same, lines={5: CODE[5], 50: f"  {CODE[5]}  # now with a comment"}) == []


NEW = {
    "another check": finding("parameter-sync"),
    "another file": finding(file="other.py"),
    "another function": finding(function="evaluate"),
    "another line": finding(line=9),
    "another parameter": finding(subject="net.bias"),
}


@pytest.mark.parametrize("one", NEW.values(), ids=NEW)
def test_what_is_new(tmp_path, one):
    """A mistake of the same kind elsewhere counts."""
    assert new(tmp_path, [entry()], one) == [one]


def test_a_second_line_of_the_same_text_is_new(tmp_path):
    """The count says how many there were; two findings on one line are one place."""
    first, second = finding(line=5), finding(line=14)
    assert new(tmp_path, [entry()], second, first) == [second]
    assert new(tmp_path, [entry(count=2)], second, first) == []
    again = replace(first, cause="something else")
    assert new(tmp_path, [entry()], first, again) == []


def test_an_error_in_the_place_of_a_warning_is_new(tmp_path):
    """It is worse than what was accepted; and the entry is not called gone."""
    found = with_accepted(verdict(tmp_path, finding()), rules(tmp_path, entry(severity="warning")), sites())
    assert found.findings == (finding(),)
    assert not any("matches nothing" in note for note in found.notes)


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("file /scratch/run-17/epoch-3.pt", "file /scratch/run-18/epoch-12.pt", True),
        ("file checkpoint.pt", "file optimizer.pt", False),
        ("call 7 on the default group", "call 3,911 on the default group", False),
        ("call 7 on the default group", "call 12 on the default group", True),
        ("rank 1", "rank 3", True),
        ("layers.0.weight", "layers.1.weight", False),
    ],
)
def test_numbers_that_vary(tmp_path, one, other, same):
    """Of calls, ranks, epochs and folders; those of parameters' names say which."""
    (known,) = new_baseline(verdict(tmp_path, finding(subject=one)), rules(tmp_path)).entries
    assert (new(tmp_path, [known], finding(subject=other)) == []) == same


def test_it_is_written_in_an_order_that_stays(tmp_path):
    """Sorted, one value to a line, and the same whatever the order of the findings."""
    found = [finding(), WARNING, finding(line=14, function="warm_up"), finding("rank-failure", file="b.py")]
    texts = set()
    for order in (found, found[::-1]):
        baselines.write(new_baseline(verdict(tmp_path, *order), rules(tmp_path)))
        texts.add((tmp_path / "baseline.json").read_text())
    (text,) = texts
    document = json.loads(text)
    assert document["schema"] == 2
    assert [(one["check"], one["severity"], one["function"], one["code"]) for one in document["findings"]] == [
        ("gradient-sync", "error", "train", "optimizer.step()"),
        ("checkpoint-atomic-save", "warning", "train", "torch.save(state, path)"),
        ("gradient-sync", "error", "warm_up", "optimizer.step()"),
    ]
    assert document["findings"][0] == {**json.loads(json.dumps(document["findings"][0])), "count": 1, "reason": ""}
    assert text.endswith("}\n")
    assert baselines.read(tmp_path / "baseline.json").entries


def test_what_is_written_again(tmp_path):
    """Reasons stay, and so does what this run could not know; what is gone, or accepted otherwise, is left out."""
    before = (
        entry(),
        entry(code="loss.backward()"),
        entry(check="buffer-sync"),
        entry(file="evaluate.py"),
        entry(function="elsewhere"),
    )
    old = replace(rules(tmp_path, *before), ignores=(ignore("checkpoint-atomic-save"),))
    left = new_baseline(verdict(tmp_path, finding(), WARNING), old, sites()).entries
    assert left == (before[0], *before[2:])
    assert left[0].reason == "known"
    # A run that was not whole knows of nothing that it is gone.
    parted = replace(verdict(tmp_path), part="the evidence of rank 1 stopped early")
    assert set(new_baseline(parted, old, sites()).entries) == set(before)


def test_the_folder_of_the_file_is_where_its_paths_begin(tmp_path):
    """A run from another folder of the project, and an installed package."""
    (tmp_path / "examples").mkdir()
    lines = {f"train.py:{line}": text for line, text in CODE.items()}
    below = replace(verdict(tmp_path / "examples", finding()), lines=lines)
    (known,) = new_baseline(below, rules(tmp_path)).entries
    assert known.file == "examples/train.py"
    installed = finding(file="/somewhere/lib/python3.11/site-packages/trainer/loop.py")
    (known,) = new_baseline(verdict(tmp_path, installed), rules(tmp_path)).entries
    assert known.file == "site-packages/trainer/loop.py"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (None, "there is no baseline"),
        ("nonsense", "is no baseline of ddpcheck"),
        ("[]", "expected `object`, got `array`"),
        ('{"schema": 3}', "a newer ddpcheck has written it"),
        ('{"schema": 1, "findings": [{"check": 3}]}', "findings[0].check: expected `str`, got `int`"),
        ('{"schema": 1, "findings": [{"check": "a"}]}', "findings[0]: object missing required field"),
        ('{"schema": 1, "findings": [], "more": 1}', "unknown field `more`"),
    ],
)
def test_a_file_that_is_none(tmp_path, text, words):
    """One sentence with the file, and the entry where it is one's fault."""
    path = tmp_path / "baseline.json"
    if text is not None:
        path.write_text(text)
    with pytest.raises(Unreadable) as told:
        baselines.read(path)
    assert words in str(told.value)
    assert str(path) in str(told.value)
    assert "\n" not in str(told.value)
