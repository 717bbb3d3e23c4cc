"""Wrong usage: one clear line, exit 2, and nothing is started."""

from __future__ import annotations

import json
import os
import resource
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from running import run, script

from ddpcheck import cli
from ddpcheck.checks.registry import every_check
from ddpcheck.conformance.suite_checks import BY_CHECK
from ddpcheck.run.options import WrongUsage, parse


@pytest.fixture
def here(tmp_path, monkeypatch):
    """A folder with a script, a text and a folder in it, to be in."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text("print('trained')\n")
    (tmp_path / "notes.txt").write_text("these are no statements of Python\n")
    (tmp_path / "old.py").write_text("print 'trained'\n")
    (tmp_path / "folder").mkdir()
    (tmp_path / "train.sh").write_text("#!/bin/bash\ntorchrun\n")
    (tmp_path / "plain.sh").write_text("torchrun --nproc-per-node 2 train.py\n")
    (tmp_path / "bytes.py").write_bytes(b"\xff\xfe\x00\x01")
    for name in ("PET_NPROC_PER_NODE", "PET_NNODES"):
        monkeypatch.delenv(name, raising=False)
    # As where the environment is activated: another one's torchrun is another command.
    monkeypatch.setenv("PATH", os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]))
    return tmp_path


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "no script was given"),
        (["missing.py"], "there is no script missing.py"),
        (["folder"], "is a folder"),
        (["notes.txt"], "no Python"),
        (["old.py"], "line 1"),
        (["bytes.py"], "no Python"),
        (["-m", "missing_module"], "there is no module missing_module"),
        (["--nproc-per-nodes", "2", "train.py"], "did you mean --nproc-per-node"),
        (["--nproc-per-node", "2", "--no-such", "train.py"], "there is no option --no-such"),
        (["--checks", "gradient-snyc", "train.py"], "did you mean gradient-sync?"),
        (["--skip", "everything", "train.py"], "no check 'everything': `ddpcheck checks` lists them"),
        (["--checks", "resume-equivalence", "train.py"], "second run"),
        (["--checks", ",", "train.py"], "names no check"),
        (["--json", "nowhere/verdict.json", "train.py"], "there is no folder"),
        (["--json", "folder", "train.py"], "it is a folder"),
        (["--junit", "nowhere/verdict.xml", "train.py"], "there is no folder"),
        (["--stall-timeout", "0", "train.py"], "above 0"),
        (["--stall-timeout", "soon", "train.py"], "soon"),
        (["--evidence-limit", "-1", "train.py"], "above 0"),
        (["--evidence-limit", "1.5", "train.py"], "no whole number of megabytes"),
        (["--evidence", "notes.txt", "train.py"], "is a file"),
        (["--evidence", "notes.txt/deeper", "train.py"], "cannot be written to"),
        (["--evidence", ".", "train.py"], "is not empty"),
        (["--nnodes", "x", "train.py"], "--nnodes x is neither"),
        (["--nnodes", "2:1", "train.py"], "--nnodes 2:1 is neither"),
        (["--nproc-per-node", "two", "train.py"], "--nproc-per-node two does not work here"),
        (["--nproc-per-node", "0", "train.py"], "starts no rank"),
        (["-m", "missing.module"], "there is no module missing, and so no missing.module"),
        (["-m", "json.missing"], "there is no module json.missing"),
        (["-m", "json"], "without a __main__"),
        (["no-such-command", "launch"], "no command no-such-command on PATH"),
        (["train.sh"], "ddpcheck run bash train.sh"),
        (["plain.sh"], "ddpcheck run bash plain.sh"),
        (["--nproc-per-node", "2", "bash", "train.sh"], "without torchrun's options it is run as it is"),
        (["torchrun"], "no script was given"),
        (["torchrun", "--nproc-per-node", "2", "missing.py"], "there is no script missing.py"),
        (["--task", "--nproc-per-node", "2", "train.py"], "leave one of them out"),
        (["--nnodes", "1:2:3", "train.py"], "--nnodes 1:2:3 is neither"),
        (["--nproc-per-node", "gpus", "train.py"], "--nproc-per-node gpus does not work here"),
        (["--max-restarts", "x", "train.py"], "--max-restarts"),
        (["--frobnicate", "train.py"], "--help-torchrun list them"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_wrong_usage_is_one_sentence(here, arguments, words):
    """Each mistake gets a sentence that names the thing."""
    with pytest.raises(WrongUsage) as told:
        parse(arguments)
    assert words in str(told.value)
    assert "\n" not in str(told.value)


def test_options_of_both_are_told_from_those_of_the_script(here):
    """What stands behind the script is the script's, whatever its name."""
    options = parse(["--strict", "--nproc_per_node=4", "--json", "a.json", "train.py", "--json", "b", "--strict", "-x"])
    assert options.strict
    assert options.launched
    assert str(options.json) == "a.json"
    assert options.arguments == ("--json", "b", "--strict", "-x")
    assert options.torchrun.nproc_per_node == "4"


@pytest.mark.parametrize(
    ("arguments", "launched"),
    [
        (["train.py"], False),
        (["--strict", "train.py", "--nproc-per-node", "2"], False),
        (["-m", "json.tool"], False),
        (["--nproc-per-node", "1", "train.py"], True),
        (["--standalone", "train.py"], True),
        (["--nnodes=1", "train.py"], True),
    ],
)
def test_torchruns_options_decide_who_starts_the_ranks(here, arguments, launched):
    """Any option that starts ranks calls for the agent; none of them, and the script is run as it is."""
    assert parse(arguments).launched == launched


def test_torchruns_variables_count_as_options(here, monkeypatch):
    """PET_ variables give torchrun's options, too."""
    monkeypatch.setenv("PET_NPROC_PER_NODE", "2")
    assert parse(["train.py"]).launched


COMMANDS = [
    ["jump"],
    ["train.py"],
    ["checks", "all"],
    ["checks", "--all"],
    ["explain"],
    ["explain", "gradient-sync", "no-hang"],
    ["explain", "--all"],
    ["explain", "gradient-snyc"],
    ["judge", "--all"],
    ["judge", "missing"],
    ["doctor", "all"],
    ["doctor", "--all"],
    ["doctor", "--timeout", "soon"],
    ["run"],
    ["run", "missing.py"],
    ["run", "notes.txt"],
    ["run", "-m", "missing_module"],
    ["run", "no-such-command"],
    ["run", "--no-such", "train.py"],
    ["run", "--checks", "gradient-snyc", "train.py"],
    ["run", "--json", "folder", "train.py"],
    ["run", "--nnodes", "x", "train.py"],
    ["run", "--nproc-per-node", "two", "train.py"],
    ["run", "--start-method", "jump", "train.py"],
    ["run", "--task", "--standalone", "train.py"],
    ["run", "torchrun", "--nproc-per-node", "2", "missing.py"],
]
"""Command lines that are wrong."""

HELP = [
    ["--help"],
    ["judge", "--help"],
    ["checks", "--help"],
    ["explain", "--help"],
    ["doctor", "--help"],
    ["help", "run"],
]
HELP += [["run", "--help"], ["run", "-h"], ["run", "--help-torchrun"]]

ASKED = """
import contextlib, io, json, sys
from ddpcheck import cli
answers = []
for arguments in json.loads(sys.argv[1]):
    with contextlib.redirect_stderr(io.StringIO()) as err, contextlib.redirect_stdout(io.StringIO()) as out:
        try:
            code = cli.main(arguments)
        except SystemExit as leaving:
            code = leaving.code
    answers.append((code, out.getvalue(), err.getvalue(), "torch" in sys.modules))
print(json.dumps(answers))
"""


def answers(commands):
    """What an interpreter that has not imported torch answers to each of them."""
    ran = subprocess.run(
        [sys.executable, "-c", ASKED, json.dumps(commands)], capture_output=True, text=True, check=True
    )
    return json.loads(ran.stdout)


def test_every_mistake_is_answered_without_torch(here):
    """Each gets exit 2 and one line on stderr, and waits for no import of torch."""
    for arguments, (code, out, err, torch) in zip(COMMANDS, answers(COMMANDS), strict=True):
        assert (code, out, torch) == (2, "", False), arguments
        assert len(err.splitlines()) == 1, err
        assert err.startswith("ddpcheck"), err


def test_help_is_printed_without_torch(here):
    """Of every command; ddpcheck's own options stand first, and torchrun's apart."""
    told = answers(HELP)
    for arguments, (code, out, err, torch) in zip(HELP, told, strict=True):
        assert (code or 0, err, torch) == (0, "", False), arguments
        assert out.startswith("usage: ddpcheck"), arguments
    run, torchruns = told[-2][1], told[-1][1]
    assert "--strict" in run
    assert "examples:" in run
    assert "--rdzv-backend" not in run
    assert "--rdzv-backend" in torchruns
    assert "--strict" not in torchruns


def test_a_mistake_is_answered_at_once(here):
    """Under 0.3 seconds of a quiet machine; as time of the processor, with a margin for a busy one."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    ran = subprocess.run([sys.executable, "-m", "ddpcheck.cli", "run", "--checks", "no-hnag", "train.py"], check=False)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert ran.returncode == 2
    assert after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime < 1.0


@pytest.mark.parametrize("arguments", [["judge", "missing"], ["judge"], ["run", "missing.py"], ["jump"]])
@pytest.mark.parametrize("closed", ["2>&-", "1>&- 2>&-"])
def test_a_mistake_that_nobody_is_told_of_is_one_all_the_same(here, arguments, closed):
    """Standard error was closed: nothing is written elsewhere for that."""
    command = shlex.join([sys.executable, "-m", "ddpcheck.cli", *arguments])
    ran = subprocess.run(f"{command} {closed}", shell=True, capture_output=True, check=False, env=nowhere(here))
    assert (ran.returncode, ran.stdout) == (2, b"")


def nowhere(folder):
    """An environment in which no run has left anything."""
    (folder / "temporary").mkdir()
    return {**os.environ, "TMPDIR": str(folder / "temporary")}


def test_from_the_shell(tmp_path):
    """Exit 2 and one line on stderr; nothing on stdout, and no report."""
    ran = run(tmp_path, "--nproc-per-node", "2", "missing.py")
    assert ran.code == 2
    assert ran.err.strip().splitlines() == ["ddpcheck run: there is no script missing.py"]
    assert ran.out == ""
    assert ran.document is None


@pytest.mark.long
def test_nothing_is_started_for_an_unwritable_report(tmp_path, forks):
    """The path is looked at before the script is run."""
    path = script(tmp_path, "open('ran', 'w').close()\n")
    ran = run(tmp_path, "--junit", tmp_path / "no" / "x.xml", path, forks=forks)
    assert ran.code == 2
    assert not (tmp_path / "ran").exists()


def test_checks_are_listed_and_explained(capsys):
    """``checks`` lists every id; ``explain`` has a text for each, and names the nearest of one that does not exist."""
    assert cli.main(["checks"]) == 0
    listed = capsys.readouterr().out
    for check in every_check():
        assert f"{check} " in listed
        assert cli.main(["explain", check]) == 0
        assert check in capsys.readouterr().out
    assert cli.main(["explain", "gradient-snyc"]) == 2
    assert "gradient-sync" in capsys.readouterr().err
    assert cli.main(["explain", "gradient-oracle:accumulation-tail-2ranks"]) == 0
    told = " ".join(capsys.readouterr().out.split())
    assert told.startswith("gradient-oracle The update equals")
    assert "a last window that is not full: 42 samples for each rank" in told
    assert cli.main(["explain", "gradient-oracle:clippin"]) == 2
    assert "did you mean gradient-oracle:clipping?" in capsys.readouterr().err
    assert cli.main(["explain"]) == 2
    assert cli.main([]) == 2
    assert cli.main(["jump"]) == 2
    assert "'jump'" in capsys.readouterr().err
    assert cli.main(["--help"]) == 0


def test_every_check_of_the_suite_is_described(capsys):
    """With its situations and their settings, where there are some; those that go on from each other have one line."""
    for name, check in BY_CHECK.items():
        if name in every_check():
            continue  # the text of the check itself
        assert cli.main(["explain", name]) == 0
        told = capsys.readouterr().out.partition("In the conformance suite")[2]
        assert name in told
        assert ("batches of" in " ".join(told.split())) == (check.situations != ("*",))
        assert told.count("\n  - ") == (len(check.situations) if len(check.situations) > 1 else 0)


def test_listing_needs_no_torch():
    """``ddpcheck checks`` and ``explain`` answer at once."""
    code = (
        "import sys, json; from ddpcheck.cli import main; main(['checks']); main(['explain', 'no-hang']);"
        "main(['explain', 'no-hang-2ranks']);"
        "print(json.dumps('torch' in sys.modules))"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert json.loads(ran.stdout.splitlines()[-1]) is False
