"""What the command says of a script that ends by itself: exit codes, the JSON, and what is passed through."""

from __future__ import annotations

import os
from xml.etree import ElementTree

import pytest
from running import run, script

from ddpcheck.checks.registry import every_check

CORRECT = """
model, optimizer = setup()
for _ in range(3):
    step(model, optimizer)
# In one piece: both ranks write to the same pipe.
sys.stdout.write(f"{__spec__.name} with {sys.argv[1:]}; the site's own: {os.environ.get('SITES_OWN')}\\n")
sys.stderr.write("to stderr\\n")
dist.destroy_process_group()
"""


@pytest.fixture(scope="module")
def correct(tmp_path_factory):
    """A module without a fault, run with -m as from a shell, where the environment has a sitecustomize."""
    folder = tmp_path_factory.mktemp("correct")
    (folder / "package").mkdir()
    (folder / "package" / "__init__.py").write_text("")
    script(folder / "package", CORRECT)
    (folder / "site").mkdir()
    (folder / "site" / "sitecustomize.py").write_text("import os\nos.environ['SITES_OWN'] = 'yes'\n")
    path = os.pathsep.join([str(folder), str(folder / "site")])
    arguments = ["-m", "package.train", "--json", "mine", "--epochs=3"]
    return run(folder, "--nproc-per-node", "2", *arguments, env={"PYTHONPATH": path})


def test_a_correct_script_holds(correct):
    """Exit 0, the document of the contract, and the script's own output and arguments as they are."""
    assert correct.code == 0, correct.err
    assert correct.out.count("with ['--json', 'mine', '--epochs=3']") == 2
    assert correct.err.count("to stderr") == 2
    document = correct.document
    assert document["schema"] == 3
    assert document["verdict"] == "held"
    assert document["world_size"] == 2
    assert document["findings"] == []
    assert set(document["checks"]) == set(every_check())
    assert document["checks"]["gradient-sync"] == {
        "status": "held",
        "checked": 3,
        "coverage": {"compared": 3, "of": 3, "unit": "windows"},
        "skipped_because": None,
    }
    assert document["checks"]["gradient-oracle"]["status"] == "not-checked"
    assert [{k: r[k] for k in ("rank", "exit_code", "signal")} for r in document["ranks"]] == [
        {"rank": 0, "exit_code": 0, "signal": None},
        {"rank": 1, "exit_code": 0, "signal": None},
    ]
    assert set(document["versions"]) >= {"ddpcheck", "torch", "python"}
    assert "HELD" in correct.err


def test_a_module_is_run_as_such(correct):
    """-m takes a module, as torchrun does."""
    assert correct.code == 0, correct.err
    assert correct.out.count("package.train with") == 2
    assert correct.document["verdict"] == "held"


@pytest.mark.long
def test_the_sites_own_startup_module_still_runs(correct):
    """A sitecustomize of the environment is not lost."""
    assert correct.out.count("the site's own: yes") == 2
    assert correct.code == 0


FAULTY = """
model, optimizer = setup()
for _ in range(3):
    step(model, optimizer, model.module)  # the fault
dist.destroy_process_group()
"""


def test_a_broken_invariant_is_told(tmp_path, forks):
    """Exit 1, and one finding with all that the contract names; --junit writes a file that CI systems read."""
    path = script(tmp_path, FAULTY)
    ran = run(tmp_path, "--junit", tmp_path / "junit.xml", "--nproc-per-node", "2", path, forks=forks)
    assert ran.code == 1
    assert ran.document["verdict"] == "violated"
    assert ran.found == ["reducer-coverage"]
    finding = ran.document["findings"][0]
    assert finding["severity"] == "error"
    assert finding["ranks"] == [0, 1]
    assert finding["step"] == 0
    assert finding["count"] == 3
    assert finding["message"]
    assert finding["advice"]
    lines = path.read_text().splitlines()
    assert (
        finding["where"]
        == {
            "file": "train.py",
            "line": next(n for n, line in enumerate(lines, 1) if "# the fault" in line),
            "function": "<module>",
        }
        or "(forward or model)" in lines[finding["where"]["line"] - 1]
    )
    assert ran.document["checks"]["gradient-sync"]["status"] == "violated"
    assert "VIOLATED" in ran.err
    text = (tmp_path / "junit.xml").read_text()
    assert "reducer-coverage" in text
    assert "<failure" in text


def test_a_script_that_raises_has_failed(tmp_path, forks):
    """Exit 1: the rank that raised is named, with the line, and its peers are consequences."""
    ran = run(
        tmp_path,
        "--nproc-per-node=2",
        script(
            tmp_path,
            """
            model, optimizer = setup()
            step(model, optimizer)
            if dist.get_rank() == 1:
                raise ValueError("the disk is made of cheese")
            step(model, optimizer)
            """,
        ),
        forks=forks,
    )
    assert ran.code == 1
    assert ran.document["verdict"] == "failed"
    assert ran.found == ["rank-failure"]
    finding = ran.document["findings"][0]
    assert finding["ranks"] == [1]
    assert "cheese" in finding["message"]
    assert finding["where"]["file"] == "train.py"


@pytest.mark.long
def test_a_script_that_raises_before_there_is_a_group_has_failed(tmp_path):
    """Exit 1, and the line, although no rank ever came to be."""
    ran = run(tmp_path, "--nproc-per-node", "2", script(tmp_path, "raise RuntimeError('too early')\n"))
    assert ran.code == 1
    assert ran.document["verdict"] == "failed"
    assert "too early" in ran.err
    assert ran.document["findings"][0]["where"]["file"] == "train.py"


@pytest.mark.parametrize(
    "body",
    [
        pytest.param("print('no torch.distributed at all')\n", id="no-group", marks=pytest.mark.long),
        pytest.param("dist.init_process_group('gloo')\ndist.barrier()\n", id="no-ddp"),
    ],
)
def test_a_script_without_ddp_checks_nothing(tmp_path, forks, body):
    """Exit 3, and a sentence that says so."""
    ran = run(tmp_path, "--nproc-per-node", "2", script(tmp_path, body), forks=forks)
    assert ran.code == 3, ran.err
    assert ran.document["verdict"] == "nothing-checked"


WARNING = """
model, optimizer = setup()
for _ in range(2):
    step(model, optimizer)
"""


@pytest.mark.parametrize(("strict", "code"), [pytest.param(False, 0, marks=pytest.mark.long), (True, 1)])
def test_warnings_count_when_asked_for(tmp_path, forks, strict, code):
    """A group that is not destroyed is a warning: exit 0; with --strict 1, and a failure in the JUnit file."""
    path, junit = script(tmp_path, WARNING), tmp_path / "junit.xml"
    options = ["--junit", junit, *(["--strict"] if strict else [])]
    ran = run(tmp_path, *options, "--nproc-per-node", "2", path, forks=forks)
    assert ran.found == ["process-hygiene"]
    assert ran.document is not None
    assert ran.document["checks"]["process-hygiene"]["status"] == "at-risk"
    assert ran.code == code
    assert ElementTree.parse(junit).getroot().get("failures") == str(code)


def test_checks_can_be_chosen(tmp_path, forks):
    """--checks and --skip decide which findings count."""
    path = script(tmp_path, FAULTY)
    chosen = ["--checks", "parameter-sync,batch-count,gradient-sync", "--skip", "gradient-sync"]
    ran = run(tmp_path, *chosen, "--nproc-per-node", "2", path, forks=forks)
    assert ran.found == ["parameter-sync"]
    assert ran.code == 1


SPAWNING = """
import torch.multiprocessing as mp


def work(rank, size, store, fault):
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=size)
    torch.manual_seed(rank)
    model = DistributedDataParallel(nn.Linear(4, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(2):
        step(model, optimizer, model.module if fault else None)
    dist.destroy_process_group()


if __name__ == "__main__":
    fault = "--fault" in sys.argv
    if "fork" in sys.argv:
        store = os.path.abspath("store")
        ranks = [mp.get_context("fork").Process(target=work, args=(r, 2, store, fault)) for r in (0, 1)]
        for rank in ranks:
            rank.start()
        for rank in ranks:
            rank.join()
    else:
        mp.spawn(work, (2, os.path.abspath("store"), fault), nprocs=2)
"""


@pytest.mark.parametrize(
    ("how", "fault"),
    [
        pytest.param("spawn", False, marks=pytest.mark.long),
        pytest.param("spawn", True, marks=pytest.mark.long),
        ("fork", False),
        pytest.param("fork", True, marks=pytest.mark.long),
    ],
)
def test_ranks_that_a_script_starts_itself_are_followed(tmp_path, forks, how, fault):
    """Without torchrun's options the script is run as it is, and a rank is whoever joins the group."""
    path = script(tmp_path, SPAWNING)
    ran = run(tmp_path, path, how, *(["--fault"] if fault else []), forks=forks)
    assert ran.document["world_size"] == 2
    assert ran.found == (["reducer-coverage"] if fault else []), ran.err
    assert ran.code == int(fault)
    assert [r["exit_code"] for r in ran.document["ranks"]] == [0, 0]
