"""The page in a real browser: it renders, links jump, keys work, light and dark, wide and narrow, and it opens soon."""

from __future__ import annotations

import time

import pytest
from msgspec.structs import replace

from ddpcheck.report.page import page
from tests.report.page import chromium
from tests.report.timeline.made import finding, made
from tests.report.verdicts import HELD, HUNG, VIOLATED
from tests.simulated_evidence import Training

pytestmark = [pytest.mark.long, pytest.mark.skipif(bool(chromium.missing()), reason=chromium.missing())]

FINDINGS = (
    finding(step=30),
    finding(line=7, check="checkpoint-atomic-save", ranks=(0,), step=None, severity="warning"),
)
SIZE = Training(ranks=4, steps=120, epoch=40, late=2)


@pytest.fixture(scope="module")
def browser():
    with chromium.browsing() as found:
        yield found


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    """A page of two findings and four ranks."""
    path = tmp_path_factory.mktemp("page") / "page.html"
    page.write(replace(VIOLATED, world_size=4, findings=FINDINGS), path, made(SIZE, FINDINGS))
    return path


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 390])
def test_it_renders(browser, file, scheme, width):
    """No word on the console, no request, nothing wider than the window, and lanes in several colours."""
    opened = chromium.Opened(browser, file, width=width, scheme=scheme).ready()
    assert opened.said == []
    assert opened.page.evaluate("document.documentElement.scrollWidth") <= width
    colours = opened.page.evaluate(
        """() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => {
            const canvas = document.querySelector("canvas");
            const {data} = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
            const found = new Set();
            for (let n = 0; n < data.length; n += 4) found.add(data[n] << 16 | data[n + 1] << 8 | data[n + 2]);
            done(found.size);
        })))"""
    )
    assert colours > 8


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_words_stand_out_from_their_ground(browser, file, scheme):
    """A contrast of 4.5 to 1 at the least (WCAG AA), for the colours that words are written in."""
    opened = chromium.Opened(browser, file, scheme=scheme).ready()
    ratios = opened.page.evaluate(
        """() => {
            const style = getComputedStyle(document.documentElement);
            const light = (name) => {
                const hex = style.getPropertyValue("--" + name).trim().slice(1);
                const parts = [0, 2, 4].map((n) => parseInt(hex.slice(n, n + 2), 16) / 255)
                    .map((v) => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
                return 0.2126 * parts[0] + 0.7152 * parts[1] + 0.0722 * parts[2];
            };
            const found = {};
            for (const word of ["ink", "dim", "accent", "error", "warning", "ok"])
                for (const ground of ["bg", "panel", "soft"]) {
                    const [a, b] = [light(word), light(ground)].sort((x, y) => y - x);
                    found[word + " on " + ground] = (a + 0.05) / (b + 0.05);
                }
            return found;
        }"""
    )
    assert {pair: ratio for pair, ratio in ratios.items() if ratio < 4.5} == {}


def test_a_finding_leads_to_its_moment_and_back(browser, file):
    """From the card's link to the timeline, and from its number there to the card."""
    opened = chromium.Opened(browser, file).ready()
    opened.page.locator("#finding-1 .to-timeline").click()
    start, end = opened.view()
    mark = opened.page.evaluate("ddpcheckTimeline.data.marks[0]")
    assert start < mark[2] < end
    assert end - start < opened.page.evaluate("ddpcheckTimeline.data.end") / 4
    assert "rank 1: optimizer step" in opened.about()
    assert "step 30" in opened.about()
    assert "train.py:6 in main" in opened.about()
    opened.page.wait_for_function("ddpcheckTimeline.painter.flags.some((flag) => flag.finding === 0)")
    flag = opened.page.evaluate("ddpcheckTimeline.painter.flags.find((flag) => flag.finding === 0)")
    opened.page.locator("canvas").click(position={"x": flag["x"] + 4, "y": 12})
    assert opened.page.evaluate("location.hash") == "#finding-1"
    assert opened.page.evaluate("document.activeElement.id") == "finding-1"
    assert opened.said == []


def test_the_keyboard_does_it_all(browser, file):
    """Reached by tab with a visible focus; zoom, pan, ranks, events and findings."""
    opened = chromium.Opened(browser, file).ready()
    keys = opened.page.keyboard
    for _ in range(60):
        keys.press("Tab")
        if opened.page.evaluate("document.activeElement.tagName") == "CANVAS":
            break
    focused = opened.page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
    assert (opened.page.evaluate("document.activeElement.tagName"), focused) == ("CANVAS", "solid")
    keys.press("0")
    whole = opened.view()
    keys.press("+")
    zoomed = opened.view()
    assert zoomed[1] - zoomed[0] < whole[1] - whole[0]
    keys.press("ArrowRight")
    assert opened.view()[0] > zoomed[0]
    keys.press("ArrowLeft")
    assert opened.view()[0] == pytest.approx(zoomed[0], abs=1)
    keys.press("-")
    assert opened.view()[1] - opened.view()[0] > zoomed[1] - zoomed[0]
    keys.press("ArrowDown")
    keys.press("ArrowDown")
    assert opened.about().startswith("rank 1")
    keys.press("n")
    first = opened.about()
    keys.press("n")
    assert opened.about() != first
    keys.press("Shift+ArrowRight")
    assert " at " in opened.about()
    assert opened.page.locator(".spoken").inner_text()
    keys.press("Enter")
    assert opened.page.evaluate("location.hash").startswith("#finding-")
    assert opened.said == []


def test_wheel_drag_and_buttons(browser, file):
    """The wheel zooms where the pointer is once the timeline was clicked, and scrolls the page before; a drag moves."""
    opened = chromium.Opened(browser, file).ready()
    canvas = opened.page.locator("canvas")
    canvas.scroll_into_view_if_needed()
    box = canvas.bounding_box()
    x, y = box["x"] + 600, box["y"] + 100
    before = opened.view()
    opened.page.mouse.move(x, y)
    opened.page.mouse.wheel(0, -100)
    assert opened.view() == before
    canvas.scroll_into_view_if_needed()
    box = canvas.bounding_box()
    y = box["y"] + 100
    opened.page.mouse.click(x, y)
    opened.page.mouse.wheel(0, -100)
    opened.page.wait_for_function(f"ddpcheckTimeline.to - ddpcheckTimeline.from < {before[1] - before[0]}")
    zoomed = opened.view()
    opened.page.mouse.down()
    opened.page.mouse.move(x - 200, y)
    opened.page.mouse.up()
    assert opened.view()[0] > zoomed[0]
    for name in ("Zoom in", "Zoom out", "Earlier", "Later", "training", "whole run"):
        opened.page.get_by_role("button", name=name).click()
    assert opened.view()[0] == 0
    assert opened.said == []


def test_who_waited_for_whom_is_said(browser, file):
    """At a call: how long, for which rank, and how many ranks have made it."""
    opened = chromium.Opened(browser, file).ready()
    said = opened.page.evaluate(
        """() => {
            const T = ddpcheckTimeline, it = T.data.lanes[0];
            const named = (n) => T.data.labels[it.labels[n]][1];
            const event = it.waited.findIndex((one, n) => one > 0 && named(n).includes("gradients"));
            T.pick(0, event);
            return T.about.textContent;
        }"""
    )
    assert "for rank 2, which came last" in said
    assert "made by 4 of 4 ranks" in said


def test_a_deadlock(browser, tmp_path):
    """Its calls have no counterpart, and go on to the end."""
    size = Training(ranks=3, steps=20, hangs=1)
    found = (finding(line=8, check="no-hang", ranks=(0, 2), step=None, links=("call world 22",)),)
    page.write(replace(HUNG, findings=found), tmp_path / "page.html", made(size, found))
    opened = chromium.Opened(browser, tmp_path / "page.html").ready()
    opened.page.locator("#finding-1 .to-timeline").click()
    assert "barrier()" in opened.about()
    assert "No such call on record: rank 1" in opened.about()
    assert "it has not come back from this" in opened.about()
    assert opened.said == []


def test_a_page_without_a_timeline(browser, tmp_path):
    """Or without anything at all, is quiet."""
    page.write(HELD, tmp_path / "page.html")
    opened = chromium.Opened(browser, tmp_path / "page.html")
    assert opened.said == []
    assert "node of rank 0" in opened.page.locator("#timeline").inner_text()


def test_a_timeline_that_was_thinned(browser, tmp_path):
    """Merged events say what they stand for."""
    page.write(HELD, tmp_path / "page.html", made(Training(steps=3_000), most=4_000))
    opened = chromium.Opened(browser, tmp_path / "page.html").ready()
    said = opened.page.evaluate(
        "() => {"
        "const T = ddpcheckTimeline; T.pick(0, [...T.data.lanes[0].merges.keys()][3]); return T.about.textContent; }"
    )
    assert " \u00d7 " in said
    assert opened.said == []


def test_thirty_two_ranks_and_ten_thousand_steps(browser, tmp_path):
    """Opens in two seconds (of the browser's own work: this machine may have others), and is below 20 MB."""
    import psutil

    file = tmp_path / "page.html"
    page.write(HELD, file, made(Training(ranks=32, steps=10_000, epoch=500, late=7)))
    size = file.stat().st_size / 1e6
    children = [one for one in psutil.Process().children(recursive=True) if "chrom" in one.name()]
    before = sum(sum(one.cpu_times()[:2]) for one in children)
    began = time.monotonic()
    opened = chromium.Opened(browser, file).ready()
    took = time.monotonic() - began
    children = [one for one in psutil.Process().children(recursive=True) if "chrom" in one.name()]
    spent = sum(sum(one.cpu_times()[:2]) for one in children) - before
    print(f"{size:.1f} MB, ready after {took:.2f} s, {spent:.2f} s of CPU")
    assert size < 20
    assert spent < 4
    assert opened.said == []
