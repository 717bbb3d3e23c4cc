"""Who imports whom: no cycles, folders run downhill, and the pytest process imports no torch."""

from __future__ import annotations

import ast
import fnmatch
import json
import re
import subprocess
import sys
from collections.abc import Iterator

import pytest

from tests.package.sources import FILES, ROOT, tree

IN_THE_PYTEST_PROCESS = [
    "ddpcheck",
    "ddpcheck.pytest_plugin",
    "ddpcheck.marks.*",
    "ddpcheck.plugin.*",
    "ddpcheck.outcomes.*",
    "ddpcheck.report.*",
    "ddpcheck.verdict.*",
    "ddpcheck.checks",
    "ddpcheck.checks.*",
    "ddpcheck.judging.*",
    "ddpcheck.trainings.*",
    "ddpcheck.evidence",
    "ddpcheck.evidence.*",
    "ddpcheck.seams",
    "ddpcheck.vocabulary.*",
    "ddpcheck.gpus.*",
    "ddpcheck.conformance.check_trainer",
    "ddpcheck.conformance.suite",
    "ddpcheck.conformance.situation_runner",
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
        for full in imports(tree(path)):
            target = full if full in FILES else full.rpartition(".")[0]
            if target in FILES:
                found[name].add(target)
            else:
                assert not full.startswith("ddpcheck"), f"{name} imports {full}, and there is no such module"
    return found


def test_the_graph_is_seen():
    """The graph has the modules and the imports that it is about, also those within functions."""
    found = graph()
    assert len(found) > 40
    assert {"ddpcheck.evidence.epochs", "ddpcheck.probes.digests.sample_fingerprints"} <= found[
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


LINT = "import sys; from importlinter.cli import lint_imports; sys.exit(lint_imports({path!r}, no_cache=True))"


def test_folders_import_downhill():
    """The contracts of pyproject.toml, on which folder may import which, are kept."""
    path = ROOT.parent / "pyproject.toml"
    code = LINT.format(path=str(path))
    ran = subprocess.run([sys.executable, "-c", code], cwd=path.parent, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert " 0 broken" in ran.stdout


def test_modules_that_are_named_in_text_are_there():
    """A module that is imported by its name at run time, or in another interpreter, is one that there is."""
    named = {
        node.value
        for path in FILES.values()
        for node in ast.walk(tree(path))
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
    for pattern in IN_THE_PYTEST_PROCESS:
        assert fnmatch.filter(FILES, pattern), f"{pattern} names no module"
    names = [name for name in FILES if any(fnmatch.fnmatchcase(name, one) for one in IN_THE_PYTEST_PROCESS)]
    loaded = loaded_by("import " + ", ".join(names))
    assert set(names) <= loaded
    assert "torch" not in loaded


@pytest.mark.parametrize("name", ["ddpcheck", "ddpcheck.pytest_plugin"])
def test_a_session_without_distributed_tests_pays_nothing(name):
    """Importing the package or its plugin brings in neither torch nor what only the runtime needs."""
    loaded = loaded_by(f"import {name}")
    assert name in loaded
    assert loaded & {"torch", "msgspec", "psutil", "xxhash", "numpy", "hypothesis"} == set()
