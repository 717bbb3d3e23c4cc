"""The table of claims tells what became of their tests, in a session and in docs/claims.md."""

from __future__ import annotations

import pytest

from tests.claims.claims import CLAIMS, DOCUMENTS, Claim
from tests.claims.plugin import ClaimsTable
from tests.claims.table import ROOT, ClaimTests, Line, as_markdown, claim_of, lines, written_tests

ONE = Claim(1, ("S0",), "water is wet", "a finger that stays dry is caught")


def line_of(there: str, outcomes: dict[str, str], reasons: dict[str, int], left_out: dict[str, int]) -> Line:
    """The line of a claim with these test functions, and what became of those that ran, each a word or more.

    The functions whose names begin with g need GPUs.
    """
    names = set(there.split())
    tests = ClaimTests(names, {name for name in names if name.startswith("g")})
    tests.results.update({name: set(said.split()) for name, said in outcomes.items()})
    tests.reasons.update(reasons)
    tests.left_out.update(left_out)
    (line,) = lines({1: tests}, [ONE])
    return line


@pytest.mark.parametrize(
    ("there", "outcomes", "reasons", "left_out", "outcome", "why"),
    [
        ("a b", {"a": "passed", "b": "passed"}, {}, {}, "verified", ""),
        ("a b", {"a": "passed", "b": "passed failed"}, {}, {}, "FAILED", "b"),
        ("a b", {"a": "skipped", "b": "failed"}, {"no GPU": 1}, {}, "FAILED", "b"),
        ("a b", {"a": "skipped", "b": "skipped"}, {"no GPU": 3}, {}, "skipped", "3 tests skipped: no GPU"),
        ("a g", {"a": "passed", "g": "skipped"}, {"no GPU": 1}, {}, "verified", "1 test skipped: no GPU"),
        ("a b", {"a": "passed", "b": "skipped"}, {"no /proc": 1}, {}, "partly run", "1 test skipped: no /proc"),
        ("a", {"a": "passed skipped"}, {"no /proc": 1}, {}, "partly run", "1 test skipped: no /proc"),
        ("a b", {"a": "passed"}, {}, {}, "partly run", "1 of its 2 test functions"),
        ("a b", {"a": "passed"}, {}, {"b": 3}, "partly run", "1 of its 2 test functions"),
        ("a b", {"a": "passed", "b": "passed"}, {}, {"b": 3}, "partly run", "3 tests left out"),
        (
            "a g",
            {"a": "passed", "g": "skipped"},
            {"x": 1},
            {"a": 1},
            "partly run",
            "1 test left out; 1 test skipped: x",
        ),
        ("a b", {}, {}, {"a": 1}, "not run", ""),
        ("", {}, {}, {}, "NO TEST", ""),
        ("", {"the file itself": "failed"}, {}, {}, "FAILED", "the file itself"),
    ],
)
def test_a_claim_is_told_as_its_tests_went(there, outcomes, reasons, left_out, outcome, why):
    """Verified where all have passed; whatever else is the case is said, and why."""
    assert line_of(there, outcomes, reasons, left_out) == Line(ONE, outcome, why)


def test_a_refuted_claim_is_told_as_such():
    """The declared outcome stands where the tests have shown it, and only there."""
    refuted = ONE._replace(outcome="refuted")
    shown = {1: ClaimTests({"a"}, results={"a": {"passed"}})}
    assert [line.outcome for line in lines(shown, [refuted])] == ["refuted"]
    assert [line.outcome for line in lines({1: ClaimTests({"a"}, results={"a": {"failed"}})}, [refuted])] == ["FAILED"]


def test_files_name_their_claims():
    """By two digits; other files are of no claim."""
    assert claim_of("test_claim_07_larger_timeout.py") == 7
    assert claim_of("test_main_job.py") is None
    assert claim_of("test_claim_7_short.py") is None


def test_tests_that_need_gpus_are_known_by_their_marks(tmp_path):
    """The mark `gpu`, and `ddp` with a device: either may be skipped where there is none."""
    (tmp_path / "test_claim_01_marks.py").write_text(
        "@pytest.mark.gpu\ndef test_a(): pass\n"
        "@pytest.mark.gpu(2)\ndef test_b(): pass\n"
        '@pytest.mark.ddp(world_size=1, device="cuda")\ndef test_c(ddp): pass\n'
        "@pytest.mark.ddp(world_size=1, device='cpu')\ndef test_d(ddp): pass\n"
        "@pytest.mark.parametrize('device', ['cuda'])\ndef test_e(device): pass\n"
    )
    found = written_tests(tmp_path)[1]
    assert {name.rpartition("_")[2] for name in found.there} == set("abcde")
    assert {name.rpartition("_")[2] for name in found.for_gpus} == set("abc")


def test_every_claim_is_in_the_table():
    """All 33, in order, each of documents that there are."""
    assert [claim.number for claim in CLAIMS] == list(range(1, 34))
    assert {name for claim in CLAIMS for name in claim.documents} == set(DOCUMENTS)


def test_no_file_of_tests_is_of_a_claim_that_there_is_not():
    """What is found in the files are claims of the table."""
    assert set(written_tests()) <= {claim.number for claim in CLAIMS}


def test_the_document_is_up_to_date():
    """docs/claims.md is what ``python tests/claims/table.py`` prints."""
    assert (ROOT / "docs" / "claims.md").read_text() == as_markdown(written_tests())


# --- a session

CONFTEST = """
from pathlib import Path
from tests.claims.claims import Claim
from tests.claims.plugin import ClaimsTable, watch

CLAIMS = [Claim(n, ("S0",), f"claim {n}", "", "refuted" if n == 2 else "verified") for n in range(1, 7)]

def pytest_configure(config):
    watch(config, ClaimsTable(Path(__file__).parent, CLAIMS))
"""
PASSES = "def test_a(): pass\n"
FILES = {
    "test_claim_01_passes.py": (
        "import pytest\n" + PASSES + "class TestB:\n    def test_b(self): pass\n"
        "@pytest.mark.gpu(real='kernels')\ndef test_gpu(): pass\n"
    ),
    "test_claim_02_refutes.py": "import pytest\n@pytest.mark.parametrize('x', ['::', 'b'])\n" + "def test_a(x): pass\n",
    "test_claim_03_skips.py": "import pytest\ndef test_a(): pytest.skip('no GPU here')\n",
    "test_claim_04_fails.py": PASSES + "def test_b(): assert 0\n",
    "test_claim_05_breaks.py": "import no_such_module\n" + PASSES,
    "test_other.py": PASSES,
}


@pytest.fixture
def claims(project):
    for name, text in {"conftest.py": CONFTEST, **FILES}.items():
        project.write(name, text)

    def run(*arguments: str) -> list[str]:
        # Simulated, so that nothing has to be started to count the real ones.
        ran = project.run("--ddp-simulate-gpus", "1", *arguments, PYTHONPATH=f"{project.folder}:{ROOT}")
        _, _, table = ran.stdout.partition(" claims -")
        kept = [" ".join(line.split()) for line in table.splitlines()[1:]]
        return kept[: next((n for n, line in enumerate(kept) if line.startswith("=")), len(kept))]

    return run


@pytest.mark.parametrize("workers", [[], pytest.param(["-n", "2"], marks=pytest.mark.long)], ids=["alone", "xdist"])
def test_a_session_ends_with_the_table(claims, workers):
    """Every outcome, from files that pass, skip, fail and break; the same where workers run the tests."""
    assert claims("--continue-on-collection-errors", *workers) == [
        "1 S0 verified claim 1",
        "1 test skipped: it runs on real GPUs only, and these are simulated: kernels",
        "2 S0 refuted claim 2",
        "3 S0 skipped claim 3",
        "1 test skipped: no GPU here",
        "4 S0 FAILED claim 4",
        "test_b",
        "5 S0 FAILED claim 5",
        "the file itself",
        "6 S0 NO TEST claim 6",
    ]


@pytest.mark.parametrize(
    ("arguments", "table"),
    [
        (["-k", "test_b"], ["1 S0 partly run claim 1", "1 of its 3 test functions", "4 S0 FAILED claim 4", "test_b"]),
        pytest.param(
            ["-n", "1", "--deselect", "test_claim_02_refutes.py::test_a[b]"],
            ["2 S0 partly run claim 2", "1 test left out"],
            marks=pytest.mark.long,
        ),
        (["test_claim_02_refutes.py::test_a[b]"], ["2 S0 partly run claim 2", "1 test left out"]),
    ],
    ids=["function", "item-xdist", "item-by-name"],
)
def test_what_was_left_out_is_said(claims, arguments, table):
    """A claim with some of its tests is partly run, and one with none is not run: neither is a gap."""
    told = claims(*arguments, "--ignore", "test_claim_05_breaks.py")
    assert table in [told[i : i + len(table)] for i in range(len(told))]


def test_a_session_without_claims_has_no_table():
    """Other tests say nothing of claims."""
    table = ClaimsTable()
    table.pytest_runtest_logreport(
        pytest.TestReport("tests/test_other.py::test_a", ("", 1, ""), {}, "passed", None, "call")
    )
    table.pytest_terminal_summary(None)  # would fail if it wrote a line
