"""The page without a browser: all that a reader needs is on it, and nothing that a program says becomes markup."""

from __future__ import annotations

import base64
import json
import re
import zlib
from array import array
from html.parser import HTMLParser

import pytest
from msgspec.structs import replace

from ddpcheck.checks.registry import every_check
from ddpcheck.report.page import finding_cards, page
from ddpcheck.report.page.coloured_code import coloured
from ddpcheck.report.page.safe_text import brief
from ddpcheck.report.source_lines import Sources
from ddpcheck.report.timeline.timeline import Timeline
from ddpcheck.verdict.verdict import CheckResult, RankResult, Verdict
from ddpcheck.vocabulary.model import CallSite
from tests.report.timeline.made import finding, made
from tests.report.verdicts import AT_RISK, ERROR, HELD, HUNG, NOTHING, SCRIPT, VIOLATED
from tests.simulated_evidence import Training


class Read(HTMLParser):
    """The page as a browser takes it apart: its words, its ids and links, and its scripts."""

    VOID = ("meta", "link", "br", "img")

    def __init__(self, text):
        super().__init__()
        self.words, self.ids, self.links, self.scripts, self.open = [], [], [], [], []
        self.feed(text)
        self.text = " ".join(" ".join(self.words).split())

    def handle_starttag(self, tag, attributes):
        given = dict(attributes)
        if tag not in self.VOID:
            self.open.append(tag)
        if "id" in given:
            self.ids.append(given["id"])
        if tag == "a":
            self.links.append(given["href"])
        for name, value in attributes:
            assert not name.startswith("on"), (tag, name)
            assert name not in ("src", "srcset")
            assert name != "href" or value.startswith(("#", "data:,")), value

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open and self.open[-1] == "script":
            self.scripts.append(data)
        elif self.open and self.open[-1] != "style":
            self.words.append(data)


def read(verdict, timeline=None):
    found = Read(page.html(verdict, timeline))
    assert found.open == []
    assert len(found.ids) == len(set(found.ids))
    assert {link[1:] for link in found.links if link.startswith("#")} <= set(found.ids)
    return found


def data(found):
    return json.loads(found.scripts[0])


def test_a_finding_is_told_whole(tmp_path):
    """Check and what it is, code with neighbours, expected, found, cause, fix, ranks, step, proof, consequences."""
    (tmp_path / "train.py").write_text(SCRIPT)
    text = read(replace(VIOLATED, folder=str(tmp_path))).text
    assert every_check()["reducer-coverage"].holds[5:] in text
    for said in (ERROR.subject, ERROR.expected, ERROR.found, ERROR.cause, ERROR.advice, "all 2 ranks"):
        assert said in text
    assert "first at step 0, 12 times" in text
    assert "train.py:5 in train" in text
    code = text.replace(" ", "")  # each word is an element of its own
    assert "loss=loss_of(model.module(x),y)" in code
    assert "deftrain(model,batches):" in code
    assert "train.py:6 in train" in text
    for check in ERROR.also:
        assert f"{check} {every_check()[check].holds[:10]}".lower() in text.lower()
    assert "What breaks it" in text
    assert "12 of 36 windows finding 1" in text
    assert "follows from 1" in text
    assert "train.py --epochs 3, 2 ranks: 1 error and 1 warning in 36 optimizer steps" in text
    assert VIOLATED.notes[0] in text
    assert "torch 2.13.0" in text


def test_what_was_not_checked_is_said_with_the_reason():
    """Each reason once, with its checks."""
    text = read(HELD).text
    assert "3 not checked, and why" in text
    assert "batch-count, no-hang, rng-independence there was nothing to judge" in text
    assert "No finding: what was checked held." in text


def test_a_hang_shows_where_each_rank_stands():
    """In what each waits and for whom, its line, and the call at which the ranks part, if that is another one."""
    text = read(HUNG).text
    assert "rank 0 waits in DDP's reduction of gradients, call 10, for 5 s , which needs ranks 1-3" in text
    assert "ended with exit code 0" in text
    assert "call 9 on the default group" in text
    assert "rank 3 : no such call" in text


@pytest.mark.parametrize("verdict", [VIOLATED, AT_RISK, HELD, NOTHING, HUNG])
@pytest.mark.parametrize("timeline", [None, Timeline(), made(Training(steps=3))])
def test_every_verdict_has_a_page(verdict, timeline):
    """Whole HTML, with or without a timeline."""
    found = read(verdict, timeline)
    assert ("timeline-data" in found.ids) == bool(timeline and timeline.lanes)


def test_an_empty_verdict():
    """Nothing at all is known: a page all the same."""
    bare = Verdict(verdict="failed", world_size=0, checks={})
    assert "FAILED" in read(bare, Timeline()).text


def test_a_fault_of_ours_is_said_to_be_ours():
    """With its text, and not as a finding."""
    text = read(replace(HELD, internal=("KeyError: 'x'",))).text
    assert "ddpcheck itself failed KeyError: 'x'" in text
    assert "This is a defect of ddpcheck" in text


HOSTILE = "</script><img src=x onerror=alert(1)>{{ 7*7 }}{% raw %}<!-- \"' \x00\x1b[31m \u202e\ud800 \r\n&amp; "


def test_hostile_texts_stay_texts(tmp_path):
    """In findings, lines, names, notes, hosts and reasons; control characters are shown as escapes."""
    (tmp_path / "train.py").write_bytes(b"caf\xe9 </style>\n</script>\n<b>\n")
    where = CallSite(file="train.py", line=2, function=HOSTILE)
    evil = replace(
        ERROR, subject=HOSTILE, expected=HOSTILE, found=HOSTILE, cause=HOSTILE, advice=HOSTILE, where=where,
        proof=((0, replace(where, line=3)),), check="gradient-sync", ranks=(1,),
    )  # fmt: skip
    verdict = replace(
        VIOLATED, command=HOSTILE, folder=str(tmp_path), findings=(evil,), notes=(HOSTILE,), internal=(HOSTILE,),
        checks={"gradient-sync": CheckResult(status="not-checked", skipped_because=HOSTILE)}, lines={},
        versions={HOSTILE: HOSTILE}, ranks=(RankResult(rank=0, signal=9, host=HOSTILE),),
    )  # fmt: skip
    timeline = made(Training(steps=3), [evil])
    evil_places = tuple(place._replace(file=HOSTILE, text=HOSTILE) for place in timeline.places)
    evil_labels = tuple(label._replace(text=HOSTILE) for label in timeline.labels)
    timeline = replace(timeline, places=evil_places, labels=evil_labels, notes=(HOSTILE,))
    text = page.html(verdict, timeline)
    found = read(verdict, timeline)
    assert "<img" not in text
    assert "{{ 7*7 }}" in found.text
    assert "\\x1b[31m" in found.text
    assert "\\x202e" in found.text
    assert not re.search(r"[\x00-\x08\x0e-\x1f\u202e\ud800]", text)
    assert len(found.scripts) == 2
    assert data(found)["places"][0][0].startswith("</script>")
    text.encode("utf-8")


def test_huge_texts_and_many_findings():
    """A page stays one that opens: long texts are cut, and so is a long list, and both say so."""
    many = tuple(replace(ERROR, subject=f"layer {n}", found="x" * 1_000_000) for n in range(300))
    text = page.html(replace(VIOLATED, findings=many))
    assert len(text) < 6_000_000
    assert "100 more findings are not on this page" in text


def test_only_own_files_are_on_it():
    """Nothing is loaded from elsewhere, and the policy says so to the browser."""
    text = page.html(VIOLATED, made(Training(steps=3)))
    assert "default-src &#39;none&#39;" in text or "default-src 'none'" in text
    assert not re.findall(r"https?://", text)
    assert "@import" not in text


def unpack(found):
    """The columns of each lane, as the page's script reads them."""
    given = data(found)
    left = zlib.decompress(base64.b64decode(given["events"]))
    lanes = []
    for lane in given["lanes"]:
        columns = []
        for count, width in lane["columns"]:
            planes = [left[place * count : (place + 1) * count] for place in range(width)]
            left = left[width * count :]
            columns.append([sum(plane[n] << 8 * place for place, plane in enumerate(planes)) for n in range(count)])
        lanes.append(columns)
    assert left == b""
    return given, lanes


@pytest.mark.parametrize("most", [2_000_000, 2_000])
def test_the_events_come_out_as_they_went_in(most):
    """Kinds, times, labels and numbers of all events; and of merged ones, how many and how long."""
    timeline = made(Training(ranks=2, steps=600), most=most)
    given, lanes = unpack(read(HELD, timeline))
    for columns, lane in zip(lanes, timeline.lanes, strict=True):
        kinds, deltas, lengths, labels, numbers, merged, counts, busy = columns
        starts = [sum(deltas[: n + 1]) for n in range(len(deltas))] if len(deltas) < 5_000 else []
        assert kinds == list(lane.events.kinds)
        assert starts == list(lane.events.starts)
        assert lengths == list(lane.events.lengths)
        assert labels == list(lane.events.labels)
        assert numbers == list(lane.events.numbers)
        assert {place: (n, b) for place, n, b in zip(merged, counts, busy, strict=True)} == {
            place: (event.times, event.busy) for place, event in enumerate(lane.events) if event.times > 1
        }
    assert (given["unit"], given["end"]) == (1, timeline.end)
    assert bool(lanes[0][5]) == (most == 2_000)


def test_a_run_of_weeks_has_times_that_fit():
    """In a coarser unit."""
    timeline = made(Training(ranks=2, steps=5))
    weeks = 30 * 86_400 * 1_000_000
    lane = timeline.lanes[0]
    lane.events.starts = array("q", [start + weeks for start in lane.events.starts])
    given, lanes = unpack(read(HELD, replace(timeline, end=timeline.end + weeks)))
    assert given["unit"] == 1_000
    assert abs(lanes[0][1][0] * 1_000 - weeks) < 10_000_000


def test_the_moments_of_findings_are_on_it():
    """Each with its severity, and a link from its card."""
    timeline = made(Training(steps=20), [finding(step=4)])
    found = read(replace(VIOLATED, findings=(finding(step=4),)), timeline)
    given = data(found)
    assert given["marks"] == [[0, 1, timeline.marks[0].at]]
    assert given["severities"] == ["error"]
    assert "show on the timeline" in found.text


def test_balance_and_waits_are_tables():
    """What each rank had to do, and whom it waited for, without the timeline's script."""
    text = read(HELD, made(Training(ranks=3, steps=50, late=1, lateness=0.02))).text
    assert "rank 0 50 50 400" in text
    assert re.search(r"rank 0 rank 1 1\.0\d s 50 calls DDP's reduction of gradients in a backward train\.py:5", text)


def test_the_calls_that_led_to_a_line_are_on_it():
    """Where they say more than the line: other files, and libraries."""
    outer = CallSite(file="main.py", line=80, function="main", through=("lightning: Trainer.fit",))
    where = CallSite(file="model.py", line=30, function="step", caller=outer)
    found = replace(ERROR, where=where)
    text = read(replace(VIOLATED, findings=(found,), lines={"main.py:80": "trainer.fit(net)"})).text
    assert "main.py:80inmaintrainer.fit(net)inlightning:Trainer.fit" in text.replace(" ", "")
    assert "trainer.fit" not in read(replace(VIOLATED, lines={"main.py:80": "trainer.fit(net)"})).text


LONG = "\n".join(["def main():", *(f"    line{n} = {n}" for n in range(2, 60)), "", "", "def short():", "    first = 1",
                  *(f"    also{n} = {n}" for n in range(8)), "    last = 2", "", "", "other = 3"])  # fmt: skip


def excerpt(tmp_path, line):
    (tmp_path / "train.py").write_text(LONG)
    sources = Sources(str(tmp_path), {})
    where = CallSite(file="train.py", line=line, function="f")
    (card,) = finding_cards.cards(replace(VIOLATED, findings=(replace(ERROR, where=where),)), sources, (), 1)
    return [one.number for one in card.excerpt.lines]


def test_code_has_colours(tmp_path):
    """Each line by itself, so that no element goes over a line's end; a text over several lines, too."""
    lines = [
        'def f(x): return "a<b>" + str(1)  # one & all',
        'said = """',
        "and",
        '"""',
        "",
        "x" * 50,
        "if (",
        "\x1b[1m\u202e",
    ]
    found = coloured(lines, 40)
    assert len(found) == len(lines)
    for text, html in zip(lines, found, strict=True):
        assert html.count("<span") == html.count("</span>")
        shown = Read(f"<!doctype html><title>x</title><p>{html}</p>")
        assert "".join(shown.text.split()).startswith("x" + "".join(brief(text, 40).split())), text
    assert '<span class="k">def</span>' in found[0]
    assert "a&lt;b&gt;" in found[0]
    assert 'class="s' in found[2]


def test_a_wrapper_is_no_line_of_the_chain():
    """A decorator's call is left out, as on the terminal."""
    main = CallSite(file="train.py", line=80, function="main")
    wrapper = CallSite(file="train.py", line=7, function="call", caller=main)
    where = CallSite(file="train.py", line=30, function="step", caller=wrapper)
    lines = {"train.py:7": "function(*args, **kwargs)"}
    verdict = replace(VIOLATED, findings=(replace(ERROR, where=where),))
    (card,) = finding_cards.cards(verdict, Sources("", lines), (), 1)
    assert [one.where.line for one in card.chain] == [80, 30]


def test_held_rows_are_folded():
    """Below those with findings; where all held, they are open."""
    html = page.html(VIOLATED)
    assert "<details><summary>1 held, and how much was compared</summary>" in html
    assert html.index('id="timeline"') < html.index('id="checks"')
    assert "<details open><summary>1 held, and how much was compared</summary>" in page.html(HELD)


def test_a_short_function_is_shown_whole(tmp_path):
    """What is wrong may be some lines away from the one that shows it."""
    assert excerpt(tmp_path, 64) == list(range(62, 73))
    assert excerpt(tmp_path, 30) == list(range(25, 34)), "of a long one, the lines around"
    assert excerpt(tmp_path, 75) == list(range(70, 76)), "of what is in no function, too"


def test_a_file_that_is_no_python_any_more(tmp_path):
    (tmp_path / "train.py").write_text("def (\n" * 9)
    assert Sources(str(tmp_path), {}).function(CallSite(file="train.py", line=4, function="f")) == (0, 0)


def test_a_line_of_the_chain_is_not_shown_twice(tmp_path):
    main = CallSite(file="train.py", line=5, function="main")
    where = CallSite(file="train.py", line=64, function="short", caller=main)
    found = replace(
        ERROR, where=where, proof=((0, main), (1, where), (1, CallSite(file="train.py", line=30, function="main")))
    )
    (tmp_path / "train.py").write_text(LONG)
    (card,) = finding_cards.cards(replace(VIOLATED, findings=(found,)), Sources(str(tmp_path), {}), (), 1)
    assert [one.where.line for one in card.proof] == [30]


def test_a_line_that_is_shown_already_comes_alone(tmp_path):
    """With its ranks, and without the same function around it once more."""
    first, again, other = (CallSite(file="train.py", line=line, function="f") for line in (64, 66, 30))
    found = replace(ERROR, where=first, proof=((1, again), (0, other)))
    (tmp_path / "train.py").write_text(LONG)
    (card,) = finding_cards.cards(replace(VIOLATED, findings=(found,)), Sources(str(tmp_path), {}), (), 1)
    assert [[line.number for line in one.lines] for one in card.proof] == [[66], list(range(25, 34))]
    assert [one.ranks for one in card.proof] == ["rank 1", "rank 0"]


def test_what_is_at_risk_is_not_shown_as_what_is_well():
    assert '<span class="verdict held">HELD' in page.html(HELD)
    assert '<span class="verdict interrupted">HELD' in page.html(AT_RISK)
