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
        "ddpcheck.probes",
        "ddpcheck.probes.importlib_bootstrap",
        "ddpcheck.probes.startup",
        "ddpcheck.properties",
        "ddpcheck.ranks",
        "ddpcheck.report",
        "ddpcheck.run",
    ],
    ["ddpcheck.doctor"],
    ["ddpcheck.vocabulary.clock"],
    # The nouns, the words, and what stands alone.
    [
        "ddpcheck.checks.catalogue",
        "ddpcheck.evidence.record",
        "ddpcheck.marks.ddp_mark",
        "ddpcheck.vocabulary.model",
        "ddpcheck.ranks.session_settings",
        "ddpcheck.vocabulary.versions",
        "ddpcheck.vocabulary.lost_peers",
        "ddpcheck.report.console",
        "ddpcheck.report.report_files",
        "ddpcheck.vocabulary.wording",
    ],
    # Properties: what an example is made of, what tells failures apart, what hypothesis is asked, and strategies.
    [f"ddpcheck.properties.{name}" for name in ("choices", "explicit", "needed", "origins", "plugin", "seeding")],
    ["ddpcheck.properties.example_verdict"],
    [f"ddpcheck.properties.{name}" for name in ("collectives", "modules", "sizes")],
    ["ddpcheck.properties.loader_strategies", "ddpcheck.properties.tensor_strategies"],
    ["ddpcheck.strategies"],
    # The GPUs of a test: what a mark says, what there is, and who has them.
    ["ddpcheck.gpus.leases", "ddpcheck.marks.gpu_mark", "ddpcheck.gpus.visible_devices"],
    ["ddpcheck.gpus.allotment", "ddpcheck.gpus.gpu_inventory"],
    ["ddpcheck.gpus.tests_without_ranks"],
    # What processes write down, subject by subject, and all together.
    ["ddpcheck.seams"],
    [f"ddpcheck.evidence.{name}" for name in ("data", "files", "groups", "processes", "wrappers")],
    ["ddpcheck.evidence.optimizers"],
    ["ddpcheck.evidence.framing"],
    ["ddpcheck.evidence"],
    # Judges of an assertion's facts, family by family, and all together.
    ["ddpcheck.evidence.training_state", "ddpcheck.evidence.placement"],
    ["ddpcheck.checks.device_placement.misplaced_tensors"],
    [f"ddpcheck.checks.{name}" for name in ("batches", "epochs", "grouping", "own_devices", "replicas", "shards")],
    # A script's run: its ranks side by side, how their evidence fits together, the families' judges, and all of them.
    ["ddpcheck.judging.world"],
    [f"ddpcheck.checks.{name}" for name in ("ground", "known", "order", "pairing", "touched", "worlds")],
    [
        "ddpcheck.judging.step_alignment",
        "ddpcheck.judging.file_queries",
        "ddpcheck.verdict.interruption",
        "ddpcheck.verdict.ranks_we_crashed",
    ],
    ["ddpcheck.judging.loader_passes", "ddpcheck.judging.indirect_exchanges"],
    [f"ddpcheck.checks.{name}" for name in ("evaluations", "leftovers", "placement", "sequences", "streams", "waits")],
    [
        f"ddpcheck.checks.{name}"
        for name in ("agreed", "identity", "orders", "races", "replaced", "resumes", "spent", "writers")
    ],
    # Judges of what a test has saved and loaded, and all judges of an assertion's facts.
    ["ddpcheck.judging.failed_user_functions", "ddpcheck.checks.checkpoint_single_writer.hidden_writers"],
    [f"ddpcheck.checks.{name}" for name in ("kills", "recorded", "resuming")],
    ["ddpcheck.checks"],
    ["ddpcheck.judging.replicated_parameters"],
    [
        f"ddpcheck.checks.{name}"
        for name in ("causes", "left_behind", "sharing_told", "stateful", "steps", "stops", "standstill")
    ],
    ["ddpcheck.checks.reducer_coverage.crossed_reductions", "ddpcheck.checks.reducer_coverage.separate_models"],
    [
        f"ddpcheck.checks.{name}"
        for name in ("calls", "checkpoints", "counts", "coverage", "endings", "gaps", "half_reduced", "optimizing")
    ],
    [f"ddpcheck.checks.{name}" for name in ("allotment", "outside", "parts", "waiting")],
    ["ddpcheck.checks.shard_partition.run"],
    ["ddpcheck.checks.loaders"],
    ["ddpcheck.verdict.judges"],
    # From endings to an outcome, from judges to a verdict, and from findings to text.
    [
        "ddpcheck.explanations",
        "ddpcheck.outcomes.test_outcome",
        "ddpcheck.report.finding_text",
        "ddpcheck.verdict.verdict",
    ],
    ["ddpcheck.plugin.reruns", "ddpcheck.outcomes.subtest_outcome"],
    ["ddpcheck.explanations.__main__", "ddpcheck.report.source_lines", "ddpcheck.report.explain"],
    [
        "ddpcheck.report.json_report",
        "ddpcheck.report.pytest_reports",
        "ddpcheck.report.pytest_session",
        "ddpcheck.report.standstill_table",
    ],
    ["ddpcheck.report.junit_report", "ddpcheck.properties.property_failures", "ddpcheck.report.terminal_report"],
    # Devices that are not there: the rules, where tensors lie, torch's surface, and the context manager.
    [f"ddpcheck.device_simulation.{name}" for name in ("factories", "operators", "patching", "wording")],
    [
        "ddpcheck.device_simulation.collective_rules",
        "ddpcheck.device_simulation.errors",
        "ddpcheck.device_simulation.placement_rules",
    ],
    [f"ddpcheck.device_simulation.{name}" for name in ("dataparallel", "runtime", "storages")],
    [f"ddpcheck.device_simulation.{name}" for name in ("dispatching", "moving", "surface")],
    ["ddpcheck.device_simulation.calls_gpus_refuse"],
    ["ddpcheck.device_simulation.torch_functions"],
    ["ddpcheck.device_simulation.autograd", "ddpcheck.device_simulation.ddp_and_optimizers"],
    ["ddpcheck.device_simulation.simulation"],
    ["ddpcheck.device_simulation"],
    # What a rank records for assertions, in facts that the judges define.
    ["ddpcheck.probes.recording.signal_exceptions"],
    ["ddpcheck.probes.recording.recorder"],
    ["ddpcheck.probes.recording.unwatchable_moments", "ddpcheck.probes.recording.missing_seams"],
    ["ddpcheck.probes.digests.readable_memory", "ddpcheck.probes.digests.sparse_tensors"],
    ["ddpcheck.probes.digests.gpu_digests"],
    [
        "ddpcheck.probes.ddp.armed_forwards",
        "ddpcheck.probes.digests.exact_digests",
        "ddpcheck.probes.data.sampler_order",
        "ddpcheck.probes.optimizers.stepped_parameters",
    ],
    ["ddpcheck.probes.randomness.random_states"],
    [
        "ddpcheck.probes.digests.sample_fingerprints",
        "ddpcheck.probes.in_ddp_tests",
        "ddpcheck.probes.ddp.model_state",
        "ddpcheck.probes.tensor_devices",
    ],
    ["ddpcheck.probes.data.rank_attributes"],
    ["ddpcheck.probes.data.one_epoch"],
    # What a watched process writes down: the pen, the eyes, and the probes.
    [
        f"ddpcheck.probes.{name}"
        for name in ("frames", "operands", "pace", "polling", "quick", "results", "rows", "shapes", "spending")
    ],
    ["ddpcheck.probes.recording.warning_lines"],
    [f"ddpcheck.probes.{name}" for name in ("patching", "sites", "usage")],
    ["ddpcheck.probes.data.dataset_length", "ddpcheck.probes.data.loader_pass", "ddpcheck.probes.files.paths"],
    ["ddpcheck.probes.all_probes"],
    [f"ddpcheck.probes.{name}" for name in ("background", "following", "loads", "names", "pulses", "starting")],
    [f"ddpcheck.probes.{name}" for name in ("endings", "ledger", "placing", "seeding", "stores", "touching")],
    ["ddpcheck.probes.files.small_files", "ddpcheck.probes.ddp.forward_inputs"],
    [f"ddpcheck.probes.{name}" for name in ("loading", "membership", "saving", "startup.sitecustomize")],
    ["ddpcheck.probes.collectives.one_call", "ddpcheck.probes.optimizers.program_reductions"],
    [f"ddpcheck.probes.{name}" for name in ("files", "reduction", "streams")],
    ["ddpcheck.probes.collectives.every_call"],
    ["ddpcheck.probes.optimizers.schedulers", "ddpcheck.probes.ddp.no_sync", "ddpcheck.probes.ddp.wrappers"],
    ["ddpcheck.probes.ddp.conversions", "ddpcheck.probes.optimizers.steps"],
    ["ddpcheck.probes.ddp.module_calls"],
    ["ddpcheck.probes.files.recorded_section"],
    ["ddpcheck.probes.training_state.state_holders"],
    ["ddpcheck.probes.training_state.held_values"],
    # A script in torchrun's hands.
    ["ddpcheck.run.computing_processes"],
    [f"ddpcheck.run.{name}" for name in ("folder", "links", "options", "progress", "signals")],
    ["ddpcheck.run.agent", "ddpcheck.run.many_nodes", "ddpcheck.run.orphaned_ranks"],
    ["ddpcheck.run.supervisor"],
    ["ddpcheck.run.command"],
    # Processes of tests, and what they say to each other.
    ["ddpcheck.ranks.descriptors"],
    [
        "ddpcheck.ranks.plain_data",
        "ddpcheck.ranks.private_folders",
        "ddpcheck.ranks.huge_pages",
        "ddpcheck.ranks.rendezvous",
        "ddpcheck.ranks.stuck_ranks",
    ],
    [
        "ddpcheck.ranks.captured_output",
        "ddpcheck.ranks.process_group",
        "ddpcheck.ranks.process_ties",
        "ddpcheck.ranks.stacks",
        "ddpcheck.ranks.messages",
    ],
    ["ddpcheck.ranks.channel"],
    [
        "ddpcheck.ranks.current_rank",
        "ddpcheck.ranks.assertion_exchange",
        "ddpcheck.zygote.imports",
        "ddpcheck.ranks.rank_record",
    ],
    ["ddpcheck.examples.rank_side", "ddpcheck.ranks.property_examples"],
    [
        "ddpcheck.assertions.model_and_data",
        "ddpcheck.examples.state_machines",
        "ddpcheck.ranks.pytest_host",
        "ddpcheck.ranks.supervisor",
    ],
    ["ddpcheck.assertions.devices", "ddpcheck.zygote.rank_life", "ddpcheck.ranks.rank_starting"],
    # Trials of the user's own save and load.
    [
        "ddpcheck.checkpoint_trials",
        "ddpcheck.checkpoint_trials.collectives_alone",
        "ddpcheck.checkpoint_trials.broken_files",
        "ddpcheck.checkpoint_trials.folder_snapshots",
        "ddpcheck.checkpoint_trials.unloaded_state",
    ],
    ["ddpcheck.checkpoint_trials.ordered_reduction"],
    ["ddpcheck.checkpoint_trials.forked_copies", "ddpcheck.checkpoint_trials.user_calls"],
    ["ddpcheck.checkpoint_trials.planted_kills", "ddpcheck.checkpoint_trials.trainings"],
    ["ddpcheck.checkpoint_trials.saves_in_parts"],
    ["ddpcheck.checkpoint_trials.trial"],
    ["ddpcheck.assertions.checkpoints"],
    # A trainer's conformance: what it is put through, what is recorded, and the judges.
    ["ddpcheck.conformance", "ddpcheck.evidence.oracle_comparison", "ddpcheck.evidence.training_record"],
    ["ddpcheck.trainings.situations", "ddpcheck.conformance.not_supported"],
    ["ddpcheck.conformance.rank_instructions", "ddpcheck.trainings.steps_with_micro_batches"],
    ["ddpcheck.trainings.trained_situation"],
    ["ddpcheck.conformance.judges"],
    [f"ddpcheck.conformance.judges.{name}" for name in ("adapter", "endings", "metrics", "rates", "replicas")],
    ["ddpcheck.trainings.interrupted"],
    [f"ddpcheck.conformance.judges.{name}" for name in ("resumes", "samples", "windows")],
    [f"ddpcheck.conformance.judges.{name}" for name in ("saves", "streams", "updates")],
    ["ddpcheck.conformance.suite_checks", "ddpcheck.conformance.results"],
    ["ddpcheck.conformance.item_descriptions"],
    # In the ranks: the data and the models, the job, the record, the training, and the oracle.
    ["ddpcheck.conformance.losses", "ddpcheck.conformance.mistaken_metrics", "ddpcheck.conformance.datasets"],
    ["ddpcheck.conformance.models"],
    ["ddpcheck.conformance.job", "ddpcheck.conformance.training_recorder"],
    ["ddpcheck.conformance.oracle", "ddpcheck.conformance.rank_training"],
    # The ends of the runtime: what ranks come from, what they are, and who asks for them.
    ["ddpcheck.zygote.rank_interpreter", "ddpcheck.zygote.link", "ddpcheck.zygote.zygote"],
    ["ddpcheck.zygote.keeper", "ddpcheck.zygote.client"],
    # The pytest process's end of a property: living ranks, hypothesis around them, and an item.
    ["ddpcheck.properties.living_ranks"],
    ["ddpcheck.properties.engine"],
    ["ddpcheck.properties.property_item"],
    # The machine and its stack, examined.
    [
        "ddpcheck.doctor.advice",
        "ddpcheck.doctor.self_test_bodies",
        "ddpcheck.doctor.facts",
        "ddpcheck.doctor.self_test_progress",
    ],
    [f"ddpcheck.doctor.{name}" for name in ("children", "machine", "report")],
    ["ddpcheck.doctor.torch_build"],
    ["ddpcheck.doctor.self_test"],
    ["ddpcheck.doctor.command"],
    ["ddpcheck.cli"],
    # A trainer's conformance, carried out.
    [
        "ddpcheck.conformance.expected_failures",
        "ddpcheck.conformance.adapter_lookup",
        "ddpcheck.conformance.progress_line",
    ],
    ["ddpcheck.conformance.situation_runner"],
    ["ddpcheck.conformance.suite"],
    ["ddpcheck.conformance.check_trainer"],
    # pytest.
    ["ddpcheck.plugin.ddp_item_run"],
    ["ddpcheck.pytest_plugin"],
]

IN_THE_PYTEST_PROCESS = [
    "ddpcheck",
    "ddpcheck.pytest_plugin",
    "ddpcheck.marks.ddp_mark",
    "ddpcheck.plugin.ddp_item_run",
    "ddpcheck.outcomes.test_outcome",
    "ddpcheck.report.*",
    "ddpcheck.checks",
    "ddpcheck.checks.*",
    "ddpcheck.properties.engine",
    "ddpcheck.properties.property_item",
    "ddpcheck.zygote.client",
    "ddpcheck.zygote.link",
    "ddpcheck.ranks.private_folders",
    "ddpcheck.ranks.messages",
    "ddpcheck.ranks.channel",
    "ddpcheck.ranks.assertion_exchange",
    "ddpcheck.ranks.supervisor",
    "ddpcheck.ranks.rank_starting",
    "ddpcheck.ranks.stacks",
    "ddpcheck.ranks.process_ties",
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
    assert {"ddpcheck.checks.shard_partition.assertion", "ddpcheck.probes.digests.sample_fingerprints"} <= found[
        "ddpcheck.probes.data.one_epoch"
    ]
    assert "ddpcheck.probes.ddp.model_state" in found["ddpcheck.assertions.model_and_data"]
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
    assert "ddpcheck.zygote.keeper" in named
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
