"""The settings of a project: where they are looked for, what they say, and what is wrong with them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from ddpcheck.run import settings_file
from ddpcheck.run.options import WrongUsage, parse
from ddpcheck.run.own_options import EVIDENCE_LIMIT, STALL_TIMEOUT
from ddpcheck.run.settings_file import Settings, WrongSettings
from tests.registered_rules import CLIPPED, NAMED, register

WHOLE = """
[tool.ddpcheck]
checks = ["gradient-sync", "checkpoint-atomic-save"]
skip = ["gradient-sync"]
strict = true
advise = true
severity = {"checkpoint-atomic-save" = "error"}
baseline = "known.json"
stall-timeout = 90
evidence-limit = 64

[[tool.ddpcheck.ignore]]
check = "checkpoint-atomic-save"
file = "tools/*.py"
reason = "scratch files, made anew by each job"

[[tool.ddpcheck.ignore]]
check = "gradient-sync"
file = "train.py"
line = 12
function = "warm_up"
subject = "head.*"
reason = "the heads are trained alone"
"""


@pytest.fixture
def here(tmp_path, monkeypatch):
    """A folder with a script, to be in."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text("print('trained')\n")
    for name in ("PET_NPROC_PER_NODE", "PET_NNODES"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path


def settings(folder, text, name="pyproject.toml"):
    (folder / name).write_text(text)
    return settings_file.found_for(Path("train.py"))


def test_all_settings(here):
    """Each as it is written; the baseline lies beside the file."""
    found = settings(here, WHOLE)
    assert found.path == "pyproject.toml"
    assert (found.checks, found.skip) == (("gradient-sync", "checkpoint-atomic-save"), ("gradient-sync",))
    assert (found.strict, found.advise, found.stall_timeout, found.evidence_limit) == (True, True, 90.0, 64)
    assert found.severity == {"checkpoint-atomic-save": "error"}
    assert found.baseline == Path("known.json")
    first, second = found.ignore
    assert (first.number, first.check, first.file) == (1, "checkpoint-atomic-save", "tools/*.py")
    assert (second.number, second.line, second.function, second.subject) == (2, 12, "warm_up", "head.*")


# --- where they are


def test_the_nearest_table_counts(here):
    """From the script's folder upwards; a file without the table, or that nobody can read, is passed over."""
    (here / "pyproject.toml").write_text("[tool.ddpcheck]\nstrict = true\n")
    (here / "a" / "b").mkdir(parents=True)
    (here / "a" / "pyproject.toml").write_text("[tool.other]\nname = 'ddpcheck'\n")
    assert settings_file.found_for(Path("a/b/train.py")).path == "pyproject.toml"
    (here / "a" / "b" / "pyproject.toml").write_text("[tool.ddpcheck]\n")
    assert settings_file.found_for(Path("a/b/train.py")) == Settings(path="a/b/pyproject.toml")
    (here / "a" / "b" / "pyproject.toml").write_bytes(b"\xff\xfe")
    assert settings_file.found_for(Path("a/b/train.py")).strict


def test_the_working_directory_comes_second(here, tmp_path_factory):
    """For a script that lies elsewhere, and for a module."""
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    (here / "pyproject.toml").write_text("[tool.ddpcheck]\nstrict = true\n")
    assert settings_file.found_for(elsewhere / "train.py").path == "pyproject.toml"
    assert settings_file.found_for(None).path == "pyproject.toml"
    (elsewhere / "pyproject.toml").write_text("[tool.ddpcheck]\n")
    assert settings_file.found_for(elsewhere / "train.py").path == str(elsewhere / "pyproject.toml")


def test_there_need_be_none(here):
    """Then everything is as the command line has it; a broken file of somebody else's is none of ours."""
    assert settings(here, "[tool.other]\n") == Settings()
    assert settings(here, "nonsense") == Settings()
    assert settings(here, "# ddpcheck\n[tool") == Settings()


# --- what is wrong


ENTRY = '[[tool.ddpcheck.ignore]]\ncheck = "gradient-sync"\nfile = "train.py"\n'


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[tool.ddpcheck]\nstrict = maybe", "is no TOML: Invalid value"),
        ("[tool]\nddpcheck = 3", "[tool.ddpcheck] is a number, not a table"),
        ("[tool.ddpcheck]\nstrikt = true", "[tool.ddpcheck] has no 'strikt': did you mean strict?"),
        ("[tool.ddpcheck]\nstall_timeout = 3", "did you mean stall-timeout?"),
        ("[tool.ddpcheck]\nnonsense = 3", "has no 'nonsense': it may have checks, skip,"),
        ("[tool.ddpcheck]\nstrict = 1", "has strict as a number; give true or false"),
        ("[tool.ddpcheck]\nchecks = 'gradient-sync'", "has checks as a text; give a list"),
        ("[tool.ddpcheck]\nchecks = []", "has checks without a check"),
        ("[tool.ddpcheck]\nchecks = [1]", "has checks as a number; give the id of a check"),
        ("[tool.ddpcheck]\nskip = ['gradient-snyc']", "there is no check 'gradient-snyc': did you mean gradient-sync?"),
        ("[tool.ddpcheck]\nskip = ['everything']", "there is no check 'everything': `ddpcheck checks` lists them"),
        ("[tool.ddpcheck]\nchecks = ['resume-equivalence']", "takes a second run to compare with"),
        ("[tool.ddpcheck]\nseverity = 'error'", "has severity as a text; give a table"),
        ("[tool.ddpcheck.severity]\nbuffer-sync = 'off'", 'as "off"; put it into skip'),
        ("[tool.ddpcheck.severity]\nbuffer-sync = 'fatal'", """'fatal'; give "error" or "warning\""""),
        ("[tool.ddpcheck.severity]\nbuffers = 'error'", "there is no check 'buffers'"),
        ("[tool.ddpcheck.severity]\nno-hang = 'warning'", "that stays an error"),
        ("[tool.ddpcheck]\nbaseline = 3", "has baseline as a number; give a text"),
        ("[tool.ddpcheck]\nbaseline = ''", "has an empty baseline"),
        ("[tool.ddpcheck]\nstall-timeout = 0", "give a number of seconds above 0"),
        ("[tool.ddpcheck]\nstall-timeout = true", "has stall-timeout as true or false; give seconds"),
        ("[tool.ddpcheck]\nstall-timeout = inf", "give a number of seconds above 0"),
        ("[tool.ddpcheck]\nstall-timeout = nan", "give a number of seconds above 0"),
        ("[tool.ddpcheck]\nstall-timeout = 1" + "0" * 400, "give a number of seconds above 0"),
        ("[tool.ddpcheck]\nstall-timeout = 1" + "0" * 5000, "is no TOML: "),
        ('[tool.ddpcheck]\nbaseline = "a\\u0000b"', "has baseline with a character NUL, which no name has"),
        (ENTRY + 'reason = "a\\u0000b"', "has reason with a character NUL"),
        ("[tool.ddpcheck]\nchecks = " + "[" * 20_000, "is no TOML: "),
        ("[tool.ddpcheck]\nchecks = " + "[" * 20_000 + "]" * 20_000, "is no TOML: it is nested too deeply"),
        ("[tool.ddpcheck]\nevidence-limit = 1.5", "give a whole number of megabytes"),
        ("[tool.ddpcheck]\nevidence-limit = -1", "give a whole number of megabytes above 0"),
        ("[tool.ddpcheck]\nignore = 'train.py'", "has ignore as a text; give entries"),
        ("[tool.ddpcheck]\nignore = ['train.py']", "ignore entry 1 is a text; write [[tool.ddpcheck.ignore]]"),
        ("[[tool.ddpcheck.ignore]]\nfile = 'a.py'", "ignore entry 1 has no check"),
        ("[[tool.ddpcheck.ignore]]\ncheck = 'gradient-sync'", "ignore entry 1 has no file"),
        (ENTRY, "ignore entry 1 (gradient-sync) has no reason; say in a sentence why"),
        (ENTRY + "reason = ' '", "ignore entry 1 (gradient-sync) has an empty reason"),
        (ENTRY + "reason = 'so'\n" + ENTRY.replace("-sync", "s"), "ignore entry 2 has check 'gradients'"),
        (ENTRY + "reason = 'so'\nlines = 3", "ignore entry 1 has no 'lines': did you mean line?"),
        (ENTRY + "reason = 'so'\nline = 0", "ignore entry 1 (gradient-sync) has line 0"),
        (ENTRY + "reason = 'so'\nline = '3'", "ignore entry 1 (gradient-sync) has line as a text"),
        (ENTRY + "reason = 2026-01-01", "has reason as a date or a time; give a text"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_one_sentence(here, text, words):
    """It names the file, and the entry in it."""
    with pytest.raises(WrongSettings) as told:
        settings(here, text)
    assert words in str(told.value)
    assert str(told.value).startswith("pyproject.toml")
    assert "\n" not in str(told.value)


# --- with the command line


def test_settings_reach_the_options(here):
    """Whatever the command line leaves open."""
    (here / "pyproject.toml").write_text(WHOLE)
    (here / "known.json").write_text('{"schema": 1, "findings": []}')
    options = parse(["train.py"])
    assert options.chosen == {"checkpoint-atomic-save"}
    assert (options.strict, options.stall_timeout, options.limit) == (True, 90.0, 64 << 20)
    assert (options.rules.source, options.rules.base) == ("pyproject.toml", str(here))
    assert len(options.rules.ignores) == 2
    assert options.rules.baseline is not None
    assert options.rules.baseline.path == "known.json"
    assert not options.launched


@pytest.mark.parametrize(
    ("given", "chosen"),
    [
        (["--checks", "gradient-sync,buffer-sync"], {"gradient-sync", "buffer-sync"}),
        (["--skip", "checkpoint-atomic-save"], {"gradient-sync"}),
        (["--checks", "gradient-sync,buffer-sync", "--skip", "buffer-sync"], {"gradient-sync"}),
    ],
)
def test_the_command_line_outranks_the_file(here, given, chosen):
    """``--checks`` takes the place of both settings, ``--skip`` of its own."""
    (here / "pyproject.toml").write_text(WHOLE)
    (here / "other.json").write_text('{"schema": 1, "findings": []}')
    more = ["--no-strict", "--stall-timeout", "30", "--evidence-limit", "8", "--baseline", "other.json"]
    options = parse([*given, *more, "train.py"])
    assert options.chosen == chosen
    assert (options.strict, options.stall_timeout, options.limit) == (False, 30.0, 8 << 20)
    assert options.rules.baseline is not None
    assert options.rules.baseline.path == "other.json"


def test_a_file_that_is_named_and_none_at_all(here):
    """``--config`` takes one file as it is; ``--no-config`` leaves the project's alone."""
    (here / "pyproject.toml").write_text("nonsense of [tool.ddpcheck]")
    (here / "other.toml").write_text("[tool.ddpcheck]\nstrict = true\n")
    assert parse(["--config", "other.toml", "train.py"]).strict
    plain = parse(["--no-config", "train.py"])
    assert (plain.strict, plain.stall_timeout, plain.limit) == (False, STALL_TIMEOUT, EVIDENCE_LIMIT << 20)
    assert plain.chosen is None


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (["--config", "nowhere.toml"], "there is no file nowhere.toml"),
        (["--config", "."], "cannot be read"),
        (["--config", "pipe"], "pipe, which --config names, cannot be read: it is no regular file"),
        (["--config", "/dev/zero"], "cannot be read: it is no regular file"),
        (["--config", "sparse"], "cannot be read: it is larger than 64 mb"),
        (["--baseline", "pipe"], "pipe cannot be read: it is no regular file"),
        (["--baseline", "/dev/zero"], "cannot be read: it is no regular file"),
        (["--baseline", "deep.json"], "deep.json is no baseline of ddpcheck: it is nested too deeply"),
        (
            ["--json", "a.json", "--sarif", "a.json"],
            "--json and --sarif name one file, a.json: give each its own",
        ),
        (["--page", "a.html", "--trace", "link"], "--page and --trace name one file, link"),
        (["--json", "b.json", "--baseline", "b.json", "--write-baseline"], "--json and --baseline name one file"),
        (["--evidence-limit", "1" + "0" * 400], "is no whole number of megabytes above 0"),
        (["--config", "empty.toml"], "has no [tool.ddpcheck]"),
        (["--config", "broken.toml"], "[tool.ddpcheck] has no 'strikt'"),
        (["--config", "empty.toml", "--no-config"], "leave one of them out"),
        (["--baseline", "nowhere.json"], "there is no baseline nowhere.json; --write-baseline writes it"),
        (["--baseline", "train.py"], "train.py is no baseline of ddpcheck"),
        (["--write-baseline"], "add --baseline FILE"),
        (["--baseline", "b.json", "--write-baseline", "--fail-fast"], "choose one"),
        (["--baseline", "nowhere/b.json", "--write-baseline"], "there is no folder nowhere"),
    ],
)
def test_wrong_options(here, given, words):
    """One sentence, before anything starts."""
    (here / "empty.toml").write_text("[tool.other]\n")
    os.mkfifo(here / "pipe")
    (here / "sparse").touch()
    os.truncate(here / "sparse", 1 << 40)
    (here / "deep.json").write_text('{"findings": ' + "[" * 100_000)
    (here / "link").symlink_to("a.html")
    (here / "broken.toml").write_text("[tool.ddpcheck]\nstrikt = true\n")
    with pytest.raises(WrongUsage) as told:
        parse([*given, "train.py"])
    assert words in str(told.value)
    assert "\n" not in str(told.value)


def test_a_baseline_that_is_about_to_be_written_need_not_be_there(here):
    """The first time there is none."""
    options = parse(["--baseline", "new.json", "--write-baseline", "train.py"])
    assert options.write_baseline
    assert options.rules.baseline is not None
    assert not (here / "new.json").exists()


def test_the_page_has_every_setting():
    """docs/accepting.md lists them, and the keys of an entry."""
    page = (Path(__file__).parents[2] / "docs" / "accepting.md").read_text()
    cells = " ".join(line.split("|")[1] for line in page.splitlines() if line.startswith("|"))
    for name in (*settings_file._SETTINGS, *settings_file._ENTRY):
        assert f"`{name}`" in cells


def test_rules_may_be_named_as_checks_are(here, monkeypatch):
    """In `checks`, `skip` and entries; a rule has no severity of its own, and an unknown one is answered."""
    register(monkeypatch, "gradient-sync", CLIPPED, NAMED)
    entry = '[[tool.ddpcheck.ignore]]\ncheck = "gradient-sync/named-alike"\nfile = "*"\nreason = "known"'
    found = settings(here, f'[tool.ddpcheck]\nskip = ["gradient-sync/clipped-alone"]\n{entry}')
    assert (found.skip, found.ignore[0].check) == (("gradient-sync/clipped-alone",), "gradient-sync/named-alike")
    assert parse(["train.py"]).left_out == {"gradient-sync/clipped-alone"}
    for wrong, words in (
        ('checks = ["gradient-sync/cliped"]', "no rule 'gradient-sync/cliped': did you mean gradient-sync"),
        ('severity = {"gradient-sync/clipped-alone" = "warning"}', "a rule; only checks have one"),
    ):
        with pytest.raises(WrongSettings, match=words):
            settings(here, f"[tool.ddpcheck]\n{wrong}")


@pytest.mark.parametrize(
    ("arguments", "chosen", "left_out"),
    [
        (["--skip", "gradient-sync/clipped-alone"], None, {"gradient-sync/clipped-alone"}),
        (
            ["--checks", "gradient-sync/clipped-alone"],
            {"gradient-sync"},
            {"gradient-sync/", "gradient-sync/named-alike"},
        ),
        (["--checks", "gradient-sync,gradient-sync/clipped-alone"], {"gradient-sync"}, set()),
        (
            ["--checks", "gradient-sync,no-hang", "--skip", "no-hang,gradient-sync/named-alike"],
            {"gradient-sync"},
            {"gradient-sync/named-alike"},
        ),
        (
            ["--checks", "no-hang,gradient-sync/named-alike", "--skip", "gradient-sync/named-alike"],
            {"no-hang"},
            {"gradient-sync/", "gradient-sync/clipped-alone", "gradient-sync/named-alike"},
        ),
    ],
)
def test_which_rules_count(here, monkeypatch, arguments, chosen, left_out):
    """A rule that is chosen is all that counts of its check; one that is skipped is all that does not."""
    register(monkeypatch, "gradient-sync", CLIPPED, NAMED)
    found = parse([*arguments, "train.py"])
    assert (found.chosen, found.left_out) == (chosen, left_out)


def test_advisories_are_asked_for(here):
    """By the option or the setting; the option outranks it."""
    assert not parse(["train.py"]).advise
    assert parse(["--advise", "train.py"]).advise
    settings(here, "[tool.ddpcheck]\nadvise = true")
    assert parse(["train.py"]).advise
    assert not parse(["--no-advise", "train.py"]).advise
