"""Who imports whom: a file imports only what stands lower, and the pytest process imports no torch."""

from __future__ import annotations

import ast
import fnmatch
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import ddpcheck

ROOT = Path(ddpcheck.__file__).parent

# From low to high. The modules of one layer do not import each other; a new module needs a place here.
LAYERS = [
    # The public names, lazily, and packages that are only a name: they import nothing.
    [
        "ddpcheck",
        "ddpcheck.gpus",
        "ddpcheck.observe",
        "ddpcheck.observe.importlib_bootstrap",
        "ddpcheck.observe.startup",
        "ddpcheck.properties",
        "ddpcheck.ranks",
        "ddpcheck.report",
        "ddpcheck.run",
    ],
    ["ddpcheck.doctor"],
    ["ddpcheck.clock"],
    # The nouns, the words, and what stands alone.
    [
        "ddpcheck.catalogue",
        "ddpcheck.evidence.record",
        "ddpcheck.marks",
        "ddpcheck.model",
        "ddpcheck.portable",
        "ddpcheck.versions",
        "ddpcheck.ranks.reaction",
        "ddpcheck.report.console",
        "ddpcheck.report.places",
        "ddpcheck.wording",
    ],
    # Properties: what an example is made of, what tells failures apart, what hypothesis is asked, and strategies.
    [f"ddpcheck.properties.{name}" for name in ("choices", "explicit", "needed", "origins", "plugin", "seeding")],
    ["ddpcheck.properties.verdict"],
    [f"ddpcheck.properties.{name}" for name in ("collectives", "modules", "sizes")],
    ["ddpcheck.properties.loaders", "ddpcheck.properties.tensors"],
    ["ddpcheck.strategies"],
    # The GPUs of a test: what a mark says, what there is, and who has them.
    ["ddpcheck.gpus.leases", "ddpcheck.gpus.mark", "ddpcheck.gpus.visible"],
    ["ddpcheck.gpus.allotment", "ddpcheck.gpus.machine"],
    ["ddpcheck.gpus.plain"],
    # What processes write down, subject by subject, and all together.
    ["ddpcheck.seams"],
    [f"ddpcheck.evidence.{name}" for name in ("data", "files", "groups", "processes", "wrappers")],
    ["ddpcheck.evidence.optimizers"],
    ["ddpcheck.evidence.framing"],
    ["ddpcheck.evidence"],
    # Judges of an assertion's facts, family by family, and all together.
    ["ddpcheck.checks.holding", "ddpcheck.checks.whereabouts"],
    ["ddpcheck.checks.misplaced"],
    [f"ddpcheck.checks.{name}" for name in ("batches", "epochs", "grouping", "own_devices", "replicas", "shards")],
    # A script's run: its ranks side by side, how their evidence fits together, the families' judges, and all of them.
    ["ddpcheck.checks.world"],
    [f"ddpcheck.checks.{name}" for name in ("ground", "known", "order", "pairing", "touched", "worlds")],
    ["ddpcheck.checks.aligned", "ddpcheck.checks.asked", "ddpcheck.checks.interruption", "ddpcheck.checks.ours"],
    ["ddpcheck.checks.passes", "ddpcheck.checks.together"],
    [f"ddpcheck.checks.{name}" for name in ("evaluations", "leftovers", "placement", "sequences", "streams", "waits")],
    [
        f"ddpcheck.checks.{name}"
        for name in ("agreed", "identity", "orders", "races", "replaced", "resumes", "spent", "writers")
    ],
    # Judges of what a test has saved and loaded, and all judges of an assertion's facts.
    ["ddpcheck.checks.failures", "ddpcheck.checks.unseen"],
    [f"ddpcheck.checks.{name}" for name in ("kills", "recorded", "resuming")],
    ["ddpcheck.checks"],
    ["ddpcheck.checks.grounds"],
    [
        f"ddpcheck.checks.{name}"
        for name in ("causes", "left_behind", "sharing_told", "stateful", "steps", "stops", "standstill")
    ],
    ["ddpcheck.checks.crossed", "ddpcheck.checks.separate"],
    [
        f"ddpcheck.checks.{name}"
        for name in ("calls", "checkpoints", "counts", "coverage", "endings", "gaps", "half_reduced", "optimizing")
    ],
    [f"ddpcheck.checks.{name}" for name in ("allotment", "outside", "parts", "waiting")],
    ["ddpcheck.checks.sharing"],
    ["ddpcheck.checks.loaders"],
    ["ddpcheck.checks.judging"],
    # From endings to an outcome, from judges to a verdict, and from findings to text.
    ["ddpcheck.explanations", "ddpcheck.outcome", "ddpcheck.report.findings", "ddpcheck.verdict"],
    ["ddpcheck.reruns", "ddpcheck.subtests"],
    ["ddpcheck.explanations.__main__", "ddpcheck.report.excerpts", "ddpcheck.report.explained"],
    ["ddpcheck.report.document", "ddpcheck.report.items", "ddpcheck.report.session", "ddpcheck.report.standing"],
    ["ddpcheck.report.junit", "ddpcheck.report.properties", "ddpcheck.report.terminal"],
    # Devices that are not there: the rules, where tensors lie, torch's surface, and the context manager.
    [f"ddpcheck.devices.{name}" for name in ("factories", "operators", "patching", "wording")],
    ["ddpcheck.devices.collectives", "ddpcheck.devices.errors", "ddpcheck.devices.rules"],
    [f"ddpcheck.devices.{name}" for name in ("dataparallel", "runtime", "storages")],
    [f"ddpcheck.devices.{name}" for name in ("dispatching", "moving", "surface")],
    ["ddpcheck.devices.refusing"],
    ["ddpcheck.devices.calling"],
    ["ddpcheck.devices.gradients", "ddpcheck.devices.training"],
    ["ddpcheck.devices.simulation"],
    ["ddpcheck.devices"],
    # What a rank records for assertions, in facts that the judges define.
    ["ddpcheck.observe.interrupts"],
    ["ddpcheck.observe.recorder"],
    ["ddpcheck.observe.asleep", "ddpcheck.observe.missing"],
    ["ddpcheck.observe.readable", "ddpcheck.observe.sparse"],
    ["ddpcheck.observe.device_digest"],
    ["ddpcheck.observe.arming", "ddpcheck.observe.digest", "ddpcheck.observe.ordering", "ddpcheck.observe.stepping"],
    ["ddpcheck.observe.randomness"],
    [
        "ddpcheck.observe.fingerprint",
        "ddpcheck.observe.probes",
        "ddpcheck.observe.state",
        "ddpcheck.observe.whereabouts",
    ],
    ["ddpcheck.observe.aware"],
    ["ddpcheck.observe.data"],
    # What a watched process writes down: the pen, the eyes, and the probes.
    [
        f"ddpcheck.observe.{name}"
        for name in ("frames", "operands", "pace", "polling", "quick", "results", "rows", "shapes", "spending")
    ],
    ["ddpcheck.observe.uncounted"],
    [f"ddpcheck.observe.{name}" for name in ("patching", "sites", "usage")],
    ["ddpcheck.observe.lengths", "ddpcheck.observe.passing", "ddpcheck.observe.paths"],
    ["ddpcheck.observe.watching"],
    [f"ddpcheck.observe.{name}" for name in ("background", "following", "loads", "names", "pulses", "starting")],
    [f"ddpcheck.observe.{name}" for name in ("endings", "ledger", "placing", "seeding", "stores", "touching")],
    ["ddpcheck.observe.contents", "ddpcheck.observe.inputs"],
    [f"ddpcheck.observe.{name}" for name in ("loading", "membership", "saving", "startup.sitecustomize")],
    ["ddpcheck.observe.calling", "ddpcheck.observe.exchanging"],
    [f"ddpcheck.observe.{name}" for name in ("files", "reduction", "streams")],
    ["ddpcheck.observe.collectives"],
    ["ddpcheck.observe.schedulers", "ddpcheck.observe.synchronising", "ddpcheck.observe.wrappers"],
    ["ddpcheck.observe.handling", "ddpcheck.observe.optimizers"],
    ["ddpcheck.observe.forwards"],
    ["ddpcheck.observe.section"],
    ["ddpcheck.observe.holders"],
    ["ddpcheck.observe.holdings"],
    # A script in torchrun's hands.
    ["ddpcheck.run.computing"],
    [f"ddpcheck.run.{name}" for name in ("folder", "links", "options", "progress", "signals")],
    ["ddpcheck.run.agent", "ddpcheck.run.mirror", "ddpcheck.run.orphans"],
    ["ddpcheck.run.supervise"],
    ["ddpcheck.run.command"],
    # Processes of tests, and what they say to each other.
    ["ddpcheck.ranks.descriptors"],
    [
        "ddpcheck.ranks.encoding",
        "ddpcheck.ranks.folders",
        "ddpcheck.ranks.hugepages",
        "ddpcheck.ranks.rendezvous",
        "ddpcheck.ranks.stillness",
    ],
    [
        "ddpcheck.ranks.captured",
        "ddpcheck.ranks.group",
        "ddpcheck.ranks.processes",
        "ddpcheck.ranks.stacks",
        "ddpcheck.ranks.wire",
    ],
    ["ddpcheck.ranks.channel"],
    ["ddpcheck.ranks.current", "ddpcheck.ranks.exchange", "ddpcheck.ranks.preload", "ddpcheck.ranks.watched"],
    ["ddpcheck.properties.following", "ddpcheck.ranks.examples"],
    ["ddpcheck.assertions", "ddpcheck.properties.stateful", "ddpcheck.ranks.host", "ddpcheck.ranks.supervisor"],
    ["ddpcheck.placement", "ddpcheck.ranks.rank", "ddpcheck.ranks.starting"],
    # Trials of the user's own save and load.
    [
        "ddpcheck.checkpoints",
        "ddpcheck.checkpoints.alone",
        "ddpcheck.checkpoints.files",
        "ddpcheck.checkpoints.folders",
        "ddpcheck.checkpoints.marking",
    ],
    ["ddpcheck.checkpoints.reduction"],
    ["ddpcheck.checkpoints.copies", "ddpcheck.checkpoints.trying"],
    ["ddpcheck.checkpoints.kills", "ddpcheck.checkpoints.training"],
    ["ddpcheck.checkpoints.partly"],
    ["ddpcheck.checkpoints.trial"],
    ["ddpcheck.checkpoints.assertions"],
    # A trainer's conformance: what it is put through, what is recorded, and the judges.
    ["ddpcheck.conformance", "ddpcheck.conformance.compared", "ddpcheck.conformance.facts"],
    ["ddpcheck.conformance.situations", "ddpcheck.conformance.support"],
    ["ddpcheck.conformance.orders", "ddpcheck.conformance.traces"],
    ["ddpcheck.conformance.trained"],
    ["ddpcheck.conformance.judges"],
    [f"ddpcheck.conformance.judges.{name}" for name in ("adapter", "endings", "metrics", "rates", "replicas")],
    ["ddpcheck.conformance.judges.interrupted"],
    [f"ddpcheck.conformance.judges.{name}" for name in ("resumes", "samples", "windows")],
    [f"ddpcheck.conformance.judges.{name}" for name in ("saves", "streams", "updates")],
    ["ddpcheck.conformance.checklist", "ddpcheck.conformance.results"],
    ["ddpcheck.conformance.described"],
    # In the ranks: the data and the models, the job, the record, the training, and the oracle.
    ["ddpcheck.conformance.losses", "ddpcheck.conformance.mistaken", "ddpcheck.conformance.samples"],
    ["ddpcheck.conformance.nets"],
    ["ddpcheck.conformance.job", "ddpcheck.conformance.recording"],
    ["ddpcheck.conformance.replay", "ddpcheck.conformance.training"],
    # The ends of the runtime: what ranks come from, what they are, and who asks for them.
    ["ddpcheck.ranks.fresh", "ddpcheck.ranks.lifeline", "ddpcheck.ranks.zygote"],
    ["ddpcheck.ranks.keeper", "ddpcheck.ranks.launcher"],
    # The pytest process's end of a property: living ranks, hypothesis around them, and an item.
    ["ddpcheck.properties.living"],
    ["ddpcheck.properties.engine"],
    ["ddpcheck.properties.items"],
    # The machine and its stack, examined.
    ["ddpcheck.doctor.advice", "ddpcheck.doctor.bodies", "ddpcheck.doctor.facts", "ddpcheck.doctor.relay"],
    [f"ddpcheck.doctor.{name}" for name in ("children", "machine", "report")],
    ["ddpcheck.doctor.torch_build"],
    ["ddpcheck.doctor.selftest"],
    ["ddpcheck.doctor.command"],
    ["ddpcheck.cli"],
    # A trainer's conformance, carried out.
    ["ddpcheck.conformance.expecting", "ddpcheck.conformance.finding", "ddpcheck.conformance.progress"],
    ["ddpcheck.conformance.running"],
    ["ddpcheck.conformance.suite"],
    ["ddpcheck.conformance.public"],
    # pytest.
    ["ddpcheck.session"],
    ["ddpcheck.pytest_plugin"],
]

IN_THE_PYTEST_PROCESS = [
    "ddpcheck",
    "ddpcheck.pytest_plugin",
    "ddpcheck.marks",
    "ddpcheck.session",
    "ddpcheck.outcome",
    "ddpcheck.report.*",
    "ddpcheck.checks",
    "ddpcheck.checks.*",
    "ddpcheck.properties.engine",
    "ddpcheck.properties.items",
    "ddpcheck.ranks.launcher",
    "ddpcheck.ranks.lifeline",
    "ddpcheck.ranks.folders",
    "ddpcheck.ranks.wire",
    "ddpcheck.ranks.channel",
    "ddpcheck.ranks.exchange",
    "ddpcheck.ranks.supervisor",
    "ddpcheck.ranks.starting",
    "ddpcheck.ranks.stacks",
    "ddpcheck.ranks.processes",
]


# --- the graph


def files() -> dict[str, Path]:
    """Every module of the package, by name."""
    found = {}
    for path in sorted(ROOT.rglob("*.py")):
        parts = path.relative_to(ROOT.parent).with_suffix("").parts
        found[".".join(parts).removesuffix(".__init__")] = path
    return found


FILES = files()


def imports(tree: ast.AST) -> Iterator[str]:
    """The names that a module imports anywhere, except for type checking alone."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are absolute"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.If) and ast.unparse(node.test) in ("TYPE_CHECKING", "typing.TYPE_CHECKING"):
            yield from imports(ast.Module(body=node.orelse, type_ignores=[]))
        else:
            yield from imports(node)


def graph() -> dict[str, set[str]]:
    """The modules of the package that each module imports."""
    found: dict[str, set[str]] = {}
    for name, path in FILES.items():
        found[name] = set()
        for full in imports(ast.parse(path.read_text())):
            target = full if full in FILES else full.rpartition(".")[0]
            if target in FILES:
                found[name].add(target)
            else:
                assert not full.startswith("ddpcheck"), f"{name} imports {full}, and there is no such module"
    return found


def layer(name: str) -> int | None:
    """The place of a module; its own name counts before a pattern."""
    for fits in (str.__eq__, fnmatch.fnmatchcase):
        for number, patterns in enumerate(LAYERS):
            if any(fits(name, pattern) for pattern in patterns):
                return number
    return None


# --- the order


def test_the_graph_is_seen():
    """The graph has the modules and the imports that it is about, also those within functions."""
    found = graph()
    assert len(found) > 40
    assert {"ddpcheck.checks.shards", "ddpcheck.observe.fingerprint"} <= found["ddpcheck.observe.data"]
    assert "ddpcheck.observe.state" in found["ddpcheck.assertions"]
    assert found["ddpcheck"] == set()


def test_there_are_no_cycles():
    """No module imports itself by way of others."""
    found = graph()
    done: set[str] = set()

    def visit(name: str, path: tuple[str, ...]) -> None:
        assert name not in path, " -> ".join([*path[path.index(name) :], name])
        if name not in done:
            for target in sorted(found[name]):
                visit(target, (*path, name))
            done.add(name)

    for name in found:
        visit(name, ())


def test_every_module_has_a_place():
    """Each module stands in a layer, and each layer's modules are there."""
    assert [name for name in FILES if layer(name) is None] == []
    for patterns in LAYERS:
        for pattern in patterns:
            assert fnmatch.filter(FILES, pattern), f"{pattern} names no module"


def test_imports_go_down():
    """A module imports only what stands in a lower layer."""
    wrong = [
        f"{name} imports {target}"
        for name, targets in graph().items()
        for target in targets
        if (layer(target) or 0) >= (layer(name) or 0)
    ]
    assert wrong == []


def test_modules_that_are_named_in_text_are_there():
    """A module that is imported by its name at run time, or in another interpreter, is one that there is."""
    named = {
        node.value
        for path in FILES.values()
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Constant)
        and isinstance(node.value, str)
        and re.fullmatch(r"ddpcheck(\.\w+)+", node.value)
    }
    assert "ddpcheck.ranks.keeper" in named
    assert named - FILES.keys() == set()


# --- what the pytest process pays


def loaded_by(statement: str) -> set[str]:
    """The modules that are there in a new interpreter after a statement."""
    code = f"import json, sys\n{statement}\nprint(json.dumps(sorted(sys.modules)))"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    return set(json.loads(run.stdout))


def test_the_pytest_process_never_imports_torch():
    """What the pytest process imports, a session with distributed tests included, brings in no torch."""
    names = [name for name in FILES if any(fnmatch.fnmatchcase(name, one) for one in IN_THE_PYTEST_PROCESS)]
    assert len(names) >= len(IN_THE_PYTEST_PROCESS)
    loaded = loaded_by("import " + ", ".join(names))
    assert set(names) <= loaded
    assert "torch" not in loaded


@pytest.mark.parametrize("name", ["ddpcheck", "ddpcheck.pytest_plugin"])
def test_a_session_without_distributed_tests_pays_nothing(name):
    """Importing the package or its plugin brings in neither torch nor what only the runtime needs."""
    loaded = loaded_by(f"import {name}")
    assert name in loaded
    assert loaded & {"torch", "msgspec", "psutil", "xxhash", "numpy", "hypothesis"} == set()


def test_the_public_names_are_there():
    """Every public name can be had from the package, and no other."""
    assert dir(ddpcheck) == sorted(ddpcheck.__all__)
    for name in ddpcheck.__all__:
        assert getattr(ddpcheck, name).__name__ == name
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        _ = ddpcheck.nonsense


# --- the files


def test_files_stay_small():
    """A file that one cannot read in a sitting is two files."""
    assert [name for name, path in FILES.items() if len(path.read_text().splitlines()) > 400] == []


def test_no_file_is_a_drawer():
    """Everything has a home with a name of its own."""
    assert [name for name in FILES if name.rpartition(".")[2] in ("utils", "util", "helpers", "common", "misc")] == []


@pytest.mark.parametrize("words", [r"\b(pickle|marshal|torch)\.loads?\(", r"(?<![.\w])(eval|exec)\("])
def test_nothing_that_comes_from_elsewhere_is_executed(words):
    """Data of another process or file never becomes code."""
    assert [name for name, path in FILES.items() if re.search(words, path.read_text())] == []


def test_every_module_says_what_it_is():
    """Each file begins with a docstring."""
    assert [name for name, path in FILES.items() if not ast.get_docstring(ast.parse(path.read_text()))] == []
