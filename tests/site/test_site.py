"""The site: it builds without a warning, with a page for each check, every option, and nothing from elsewhere."""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest

from ddpcheck.checks.registry import checks, explanation, has_part
from ddpcheck.run import own_options
from tests.programs.reported import folder
from tests.site.page_code import ROOT

pytest.importorskip("sphinx", reason="the site is built where the extra `docs` is installed")
sys.path.insert(0, str(ROOT / "docs"))

from extensions import check_pages, file_links, option_tables, optional_pages, page_comments, report_colours


class Page(HTMLParser):
    """What a page loads, and its text."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.loaded: list[str] = []
        self.text = ""
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        said = dict(attributes)
        if tag in ("script", "img", "iframe", "source", "video", "object"):
            self.loaded += [said[name] or "" for name in ("src", "srcset", "data") if said.get(name)]
        if tag == "link" and said.get("rel") in ("stylesheet", "icon", "preload", "modulepreload"):
            self.loaded.append(said.get("href") or "")

    def handle_data(self, data: str) -> None:
        self.text += data


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, built as `nox -s docs` does."""
    target = tmp_path_factory.mktemp("site")
    built = subprocess.run(
        [
            sys.executable,
            "-m",
            "sphinx",
            "-W",
            "--keep-going",
            "-n",
            "-q",
            "-d",
            target / "trees",
            "docs",
            target / "html",
        ],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert (built.returncode, built.stdout) == (0, "")
    return target / "html"


@pytest.mark.long
def test_every_page_is_there_and_loads_nothing_from_elsewhere(site: Path) -> None:
    """Pages, styles and scripts: what a page needs stands beside it."""
    pages = {path: Page(path) for path in site.rglob("*.html") if "_static" not in path.parts}
    assert {f"checks/{check}.html" for check in checks()} <= {str(path.relative_to(site)) for path in pages}
    assert [one for page in pages.values() for one in page.loaded if re.match(r"(https?:)?//", one)] == []
    for path in site.rglob("*.css"):
        assert not re.search(r"(@import|url\()\s*['\"]?(https?:)?//", path.read_text(encoding="utf-8")), path
    gone = [
        one for path, page in pages.items() for one in page.loaded if not (path.parent / one.split("?")[0]).exists()
    ]
    assert [one for one in gone if not one.startswith("data:")] == []


@pytest.mark.long
def test_the_pages_say_what_their_sources_say(site: Path) -> None:
    """A check's programs and report, every option, and no comment for tests."""
    for check in checks():
        text = Page(site / "checks" / f"{check}.html").text
        assert (folder(check) / "reported.txt").read_text().strip() in text, check
        assert "To accept it" in text
    text = Page(site / "configuration.html").text
    parser = argparse.ArgumentParser(add_help=False)
    own_options.add(parser)
    names = [name for action in parser._actions for name in action.option_strings]
    assert [name for name in [*names, "--ddp-timeout", "ddp_report", "gpu("] if name not in text] == []
    for path in site.rglob("*.html"):
        assert not re.search(r"<!-- (file|shows|exit|run by|not run|table)", path.read_text(encoding="utf-8")), path


@pytest.mark.long
def test_a_link_that_leads_nowhere_ends_the_build(tmp_path: Path) -> None:
    """The strict build can fail."""
    (tmp_path / "docs").mkdir()
    conf = (ROOT / "docs" / "conf.py").read_text()
    (tmp_path / "docs" / "conf.py").write_text(re.sub(r'    "extensions\.\w+",\n', "", conf).replace('"_static"', ""))
    (tmp_path / "docs" / "index.md").write_text("# Start\n\n[there](nowhere.md)\n")
    built = subprocess.run(
        [sys.executable, "-m", "sphinx", "-W", "-n", "-q", "docs", "html"], cwd=tmp_path, capture_output=True, text=True
    )
    assert built.returncode != 0
    assert "nowhere.md" in built.stderr


# --- the parts


@pytest.mark.parametrize("check", checks())
def test_the_page_of_a_check(check: str) -> None:
    """Its own text, one title, the example, and a way to accept a finding, today's and that of comments."""
    today, tomorrow = check_pages.page(check, accepting=False), check_pages.page(check, accepting=True)
    assert re.findall(r"^# (.+)$", re.sub(r"^```.*?^```$", "", today, flags=re.M | re.S), re.M) == [check]
    for heading in re.findall(r"^## .+$", explanation(check), re.M):
        assert heading in today
    assert "## An example" in today
    assert (f"--skip {check}" in today) == has_part(check, "run")
    assert "# ddpcheck: ignore[" not in today
    if has_part(check, "run") and re.search(r"where +\S+:\d+", (folder(check) / "reported.txt").read_text()):
        assert f"# ddpcheck: ignore[{check}]" in tomorrow


def test_every_check_is_in_the_list_once() -> None:
    """In one family, and with its page in the navigation."""
    text = check_pages.listed()
    for check in checks():
        assert text.count(f"| [`{check}`](checks/{check}.md) |") == 1
        assert text.count(f"\nchecks/{check}\n") == 1


def test_pages_of_checks_that_are_gone_go(tmp_path: Path) -> None:
    """And what has not changed is not written again, so that a second build is a short one."""
    (tmp_path / "gone.md").write_text("# gone\n")
    check_pages.write(tmp_path, accepting=False)
    assert {path.stem for path in tmp_path.iterdir()} == set(checks())
    before = {path: path.stat().st_mtime_ns for path in tmp_path.iterdir()}
    check_pages.write(tmp_path, accepting=False)
    assert {path: path.stat().st_mtime_ns for path in tmp_path.iterdir()} == before


def test_the_navigation_takes_pages_in_as_they_come() -> None:
    """Entries for pages to come are left out; pages that nobody has named are in; nothing else changes."""
    text = "# T\nrest*\n```{toctree}\n:glob:\n\nA title <one>\ntwo*\nthree*\nrest*\n```\nend*\n"
    made = optional_pages.navigation(text, {"index", "one", "two", "new", "guides/deep"}, "index")
    assert made == "# T\nrest*\n```{toctree}\n:glob:\n\nA title <one>\ntwo*\n\nnew\n```\nend*\n"


def test_tables_have_what_the_parsers_have() -> None:
    """Each is made from the parser itself."""
    assert "| `--stall-timeout SECONDS` |" in option_tables.of_run()
    assert "%(default)s" not in option_tables.of_run() + option_tables.of_doctor()
    assert "| `--ddp-timeout SECONDS` | `ddp_timeout` |" in option_tables.of_pytest()
    assert "`ddp(world_size=2" in option_tables.of_marks()
    assert all(f"[{check}](checks/{check}.md)" in option_tables.of_blind_spots() for check in checks())


def test_every_variable_of_ours_is_described() -> None:
    """docs/configuration.md names each environment variable that the package reads or sets."""
    found = {
        name
        for path in (ROOT / "ddpcheck").rglob("*.py")
        for name in re.findall(r"\"(DDPCHECK_\w+)\"", path.read_text(encoding="utf-8"))
    }
    text = (ROOT / "docs" / "configuration.md").read_text(encoding="utf-8")
    assert len(found) > 4
    assert {name for name in found if f"`{name}" not in text} == set()


def test_comments_for_tests_are_taken_out() -> None:
    """Those before blocks alone; others stay."""
    source = ["<!-- file: a.py -->\n```python\n1\n```\n<!-- a remark -->\n<!-- not run: for a reason -->\n"]
    page_comments._without(None, "page", source)  # type: ignore[arg-type]
    assert source == ["```python\n1\n```\n<!-- a remark -->\n"]


def test_what_ddpcheck_prints_is_coloured() -> None:
    """A verdict, and a finding of a test; other text is left plain."""
    source = ["```\nHELD  train.py\n```\n\n```\nE         found     1\n```\n\n```\nplain\n```\n\n```bash\nls\n```\n"]
    report_colours._named(None, "page", source)  # type: ignore[arg-type]
    assert re.findall(r"^```(\w+)$", source[0], re.M) == ["report", "report", "bash"]
    printed = "VIOLATED  a\n1. error  no-hang  b\n"
    tokens = {value: str(kind) for kind, value in report_colours.ReportLexer().get_tokens(printed)}
    assert tokens["VIOLATED"] == tokens["error"] == "Token.Generic.Error"


def test_mentions_of_pages_are_links() -> None:
    """In sentences; not in code, and not in links."""
    code = "[x](docs/a.md), `docs/b.md`.\n\n    docs/c.md\n\n```\ndocs/d.md\n```\n"
    made = file_links.linked(f"See docs/run.md and (docs/report.md), {code}and docs/e.md\n", 1)
    assert made == f"See [run](../run.md) and ([report](../report.md)), {code}and [e](../e.md)\n"


def test_a_whole_html_file_is_opened(tmp_path: Path) -> None:
    """A link to docs/pages/… becomes a link to the copy, not a download."""
    from docutils import nodes
    from sphinx import addnodes

    (tmp_path / "pages").mkdir()
    (tmp_path / "pages" / "run.html").write_text("<p>")

    class App:
        srcdir = str(tmp_path)

        class env:
            docname = "guides/script"

    link = addnodes.download_reference("", "", nodes.Text("see"), reftarget="pages/run.html")
    other = addnodes.download_reference("", "", nodes.Text("see"), reftarget="run.json")
    tree = nodes.paragraph("", "", link, other)
    file_links._opened(App, tree)  # type: ignore[arg-type]
    assert [type(child) for child in tree.children] == [nodes.reference, addnodes.download_reference]
    assert tree.children[0]["refuri"] == "../pages/run.html"
