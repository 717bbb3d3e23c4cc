"""What probes rest on has a name, this torch has it, and where it is missing nothing is held."""

from __future__ import annotations

import ast
import importlib
import re
import subprocess
import sys

import pytest

from ddpcheck import evidence as ev
from ddpcheck import seams
from ddpcheck.checks import missing_seams
from ddpcheck.checks.missing_seams import asserted_on, resting_on, unjudgeable
from ddpcheck.checks.registry import checks, has_part, those
from ddpcheck.judging.world import Judged
from ddpcheck.verdict import missing_evidence
from ddpcheck.verdict.judges import judge_world
from ddpcheck.verdict.verdict import conclude
from ddpcheck.vocabulary.model import Finding
from tests.judging.written import step, world, wrapped
from tests.package.sources import FILES, ROOT, tree

SOURCES = [path for folder in ("probes", "checkpoint_trials") for path in sorted((ROOT / folder).rglob("*.py"))]


def missing(*names):
    return [(ev.Missing, {"seam": name, "of": "torch 2.99.0"}) for name in names]


# --- the table


def test_seams_are_told_apart():
    """Each name stands once, and shows something that there is a word for."""
    names = [seam.name for seam in seams.SEAMS]
    assert len(names) == len(set(names)) > 150
    assert {seam.sight for seam in seams.SEAMS} == seams.SIGHTS.keys()


@pytest.mark.parametrize("sight", seams.SIGHTS)
def test_something_rests_on_every_sight(sight):
    """A check of a run, or one of an assertion: nothing is watched for its own sake."""
    assert resting_on(sight) or asserted_on(sight)


def test_checks_rest_on_what_can_be_seen():
    """Each names sights that there are, and only where it has a judge that would need them."""
    for check, its in checks().items():
        assert {*its.rests_on, *its.asserted_on} <= seams.SIGHTS.keys(), check
        assert not its.rests_on or has_part(check, "run"), check
        assert not its.asserted_on or its.assertions, check


IN_AN_INTERPRETER = """
import sys
import torch
from ddpcheck import seams
from ddpcheck.probes.collectives import process_groups as membership
from ddpcheck.probes.recording import missing_seams as missing, patching
from ddpcheck.probes import all_probes as watching

undeclared, around = [], patching.around

def noting(owner, name, make, unless=None):
    if seams.find(owner, name) is None:
        undeclared.append((owner, name))
    return around(owner, name, make, unless)

for name in (*watching.PROBES, "files.recorded_section"):
    __import__(f"ddpcheck.probes.{name}")
for name, module in list(sys.modules.items()):
    if name.startswith("ddpcheck.probes.") and getattr(module, "around", None) is around:
        module.around = noting
patching.around = noting
seams.import_homes()
assert seams.missing() == [], seams.missing()
watching.patch()
assert undeclared == [], undeclared
assert seams.missing() == [], seams.missing()
assert missing._noted == {}, missing._noted
"""


def test_this_torch_has_them_and_probes_are_put_around_no_others():
    """Every probe is at a place that is declared; before and after all are there."""
    run = subprocess.run([sys.executable, "-c", IN_AN_INTERPRETER], capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr


def words(path):
    """Every name and text in a file's code."""
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.Attribute):
            yield node.attr
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value
        elif isinstance(node, ast.alias):
            yield node.name
        elif isinstance(node, ast.JoinedStr):
            yield "".join(part.value if isinstance(part, ast.Constant) else "*" for part in node.values)


def test_every_seam_is_used():
    """Each is named where probes are, and not only in the table."""
    used = {word for path in SOURCES for word in words(path)} | set(ev.PAIRWISE)
    made = ("register_optimizer_step_pre_hook", "register_optimizer_step_post_hook")
    assert "register_optimizer_step_*_hook" in used
    assert [s.name for s in seams.SEAMS if s.last not in used and s.last not in made] == []


OTHERS = {
    "_getframe",
    "_current_frames",
    "_DummyThread",
    "_fields",
    "_ddpcheck_opened",
    "_ddpcheck_started_at",
    "_orig_mod",
    "_builtin_table",
    "_builtin_ops",
    "_saved_dim",
    "_saved_reduction",
    "_dynamo",
    "_FrameAction",
    "_FrameExecStrategy",
    "_TorchDispatchModeKey",
    "_functorch",
    "_get_dispatch_mode",
    "_version",
}
"""Private names that nothing is judged by, or that are reported as Python's own; and our own on objects of others."""


def test_no_private_name_is_read_that_is_no_seam():
    """What is another's own affair, and may be gone with the next version, is declared."""
    ours = {
        name
        for path in FILES.values()
        for name in re.findall(r"(?:self\.|def |^|class |^ *global )(_[a-z]\w*)", path.read_text(), re.MULTILINE)
    }
    read = {}
    for path in SOURCES:
        for node in ast.walk(tree(path)):
            name = node.attr if isinstance(node, ast.Attribute) else ""
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in READS:
                name = next((a.value for a in node.args[1:2] if isinstance(a, ast.Constant)), "")
            if re.fullmatch(r"_[a-zA-Z]\w*", name) and name not in ours | OTHERS:
                read[name] = path.name
    declared = {part for seam in seams.SEAMS for part in seam.name.split(".")}
    assert "_module_parameters" in read
    assert {name: file for name, file in read.items() if name not in declared} == {}


READS = ("getattr", "attribute", "around", "hasattr")


# --- what the plugin takes from pytest and hypothesis


@pytest.mark.parametrize("seam", seams.RUNTIME, ids=lambda seam: seam.name)
def test_the_installed_pytest_and_hypothesis_have_what_the_runtime_takes(seam, request):
    """Modules, classes and their methods by name; what instances have, this session's own."""
    own = {"_pytest.config.Config": request.config, "pytest.Session": request.session, "pytest.Function": request.node}
    if seam.home in own:
        assert hasattr(own[seam.home], seam.last)
        return
    module, _, kind = seam.home.rpartition(".")
    home = getattr(importlib.import_module(module), kind) if kind[:1].isupper() else importlib.import_module(seam.home)
    assert hasattr(home, seam.last)


@pytest.mark.long
def test_the_runtime_takes_no_other_private_name():
    """What is imported from inside pytest or hypothesis is declared, and what is declared is used."""
    taken, used = set(), set()
    for name, path in FILES.items():
        if name != "ddpcheck.seams":
            used |= {*words(path)}
        for node in ast.walk(tree(path)):
            if isinstance(node, ast.Import):
                taken |= {alias.name for alias in node.names if _is_inside(alias.name)}
            elif isinstance(node, ast.ImportFrom):
                taken |= {f"{node.module}.{alias.name}" for alias in node.names if _is_inside(f"{node.module}")}
    assert "_pytest.skipping.evaluate_xfail_marks" in taken
    declared = {name for seam in seams.RUNTIME for name in (seam.name, seam.home)}
    assert taken - declared == set()
    assert [seam.name for seam in seams.RUNTIME if seam.last not in used] == []


def _is_inside(module):
    return f"{module}.".startswith(("_pytest.", "hypothesis.internal."))


# --- what is missing


class Fits:
    def __init__(self):
        self._kept = 1

    def method(self):
        return self._kept


@pytest.mark.parametrize(
    ("home", "last", "by_instances", "there"),
    [
        ("posixpath", "exists", False, True),
        ("posixpath", "nothing", False, False),
        ("no.such.module", "exists", False, False),
        (f"{__name__}.Fits", "method", False, True),
        (f"{__name__}.Fits", "_kept", False, False),
        (f"{__name__}.Fits", "_kept", True, True),
        (f"{__name__}.Fits", "_lost", True, False),
        (f"{__name__}.Other", "_kept", True, False),
    ],
)
def test_a_seam_is_missing_where_it_is_not(home, last, by_instances, there):
    """A function by its module, a method by its own class, an attribute by the methods that name it."""
    seam = seams.Seam(f"{home}.{last}", by_instances=by_instances)
    assert seam.is_missing is not there


def test_a_seam_of_later_or_newer_versions_is_not_missing():
    """What was not there at the time, what nobody has imported, and what none can use, are no loss."""
    absent = seams.Seam("posixpath.nothing")
    assert absent.is_missing
    assert not absent._replace(since=(99, 0)).is_missing
    assert not absent._replace(optional=True).is_missing
    assert absent._replace(later=True).is_missing
    assert not absent._replace(name="no_such_module.nothing", later=True).is_missing


# --- the verdict


@pytest.mark.parametrize("seam", [s for s in seams.SEAMS if resting_on(s.sight)], ids=lambda seam: seam.name)
def test_nothing_is_held_that_rests_on_what_is_missing(seam):
    """On whichever rank: the checks are reported as not checked, why, and their findings go; the others stay."""
    ranks = world([wrapped(1)], [wrapped(1), *missing(seam.name)])
    resting = resting_on(seam.sight)
    said = {check: Judged(check=check, checked=3, findings=(finding(check),)) for check in checks()}
    found = missing_evidence.only_grounded(said, ranks)
    for check in checks():
        if check in resting and check not in those("stops"):
            assert (found[check].checked, found[check].findings) == (0, ())
            assert found[check].skipped_because == f"torch 2.99.0 has no {seam.name}, on which this check rests"
        else:
            assert found[check] == said[check]
    quiet = missing_evidence.only_grounded({c: Judged(check=c, checked=3) for c in checks()}, ranks)
    assert {check for check, judged in quiet.items() if not judged.checked} == set(resting)


def test_an_assertion_whose_ground_is_missing_says_so(monkeypatch):
    """The first that is missing is named; a check that rests on none of them is judged."""
    monkeypatch.setattr(missing_seams, "SEAMS", [seams.Seam("posixpath.exists", "devices")])
    assert unjudgeable("device-placement") == ""
    lost = seams.Seam("posixpath.nothing", "devices")
    monkeypatch.setattr(missing_seams, "SEAMS", [lost])
    assert unjudgeable("device-placement") == f"{lost.of} has no posixpath.nothing, on which this check rests"
    assert unjudgeable("batch-count") == ""


def finding(check):
    return Finding(check=check, severity="error", ranks=(0,), subject="it", expected="this", found="that", advice="")


def test_the_verdict_says_what_is_missing():
    """In the checks, and among what a reader has to know first; a fault that rests on nothing else is not told."""
    name = "torch.nn.parallel.DistributedDataParallel._post_forward"
    unarmed = [ev.Usage(wrapper=0, armed=0, forwards=0)]
    records = [
        wrapped(1),
        (ev.Optimizer, {"optimizer": 0, "kind": "SGD", "site": 2, "parameters": [ev.Parameter(
            name="w", kind="float32[1]", wrapper=0, reduced=True)], "sharded": False, "values": b"12345678"}),
    ]  # fmt: skip
    ranks = [[*records, step(3, gradients=bytes([r] * 8), usage=unarmed)] for r in (1, 2)]
    known = judge_world(world(*ranks))
    assert [f.check for f in known["reducer-coverage"].findings] == ["reducer-coverage"]

    lacking = world(*[[*missing(name), *of] for of in ranks])
    verdict = conclude([judge_world(lacking)], worlds=[lacking])
    assert verdict.checks["reducer-coverage"].status == "not-checked"
    assert verdict.checks["reducer-coverage"].skipped_because == (
        f"torch 2.99.0 has no {name}, on which this check rests"
    )
    assert not any(f.check == "reducer-coverage" for f in verdict.findings)
    assert any(note.startswith(f"torch 2.99.0 has no {name}: ") for note in verdict.notes)


def test_without_a_group_the_reason_is_told_as_well():
    """A torch whose groups cannot be seen shows no rank at all: not because the program has none."""
    name = "torch.distributed.distributed_c10d.init_process_group"
    process = world([*missing(name)]).ranks[0].process
    verdict = conclude([], processes=[process])
    assert (verdict.verdict, verdict.checks["gradient-sync"].status) == ("nothing-checked", "not-checked")
    assert f"has no {name}" in (verdict.checks["gradient-sync"].skipped_because or "")


def test_evidence_of_another_version_is_read():
    """A seam that this version does not know of says nothing."""
    found = missing_evidence.lost(world([*missing("torch.nobody.knows")]).ranks[0].process for _ in range(1))
    assert found == {}
