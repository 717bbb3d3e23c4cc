"""The beginning of recording in an interpreter: whatever comes in between, the program imports what it imports."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from ddpcheck.probes import startup

ROOT = Path(__file__).parents[2]
SCRIPT = """
import sys, torch
print("ran", torch.word, ascii(sys.argv[1:]), [finder for finder in sys.meta_path if "ddpcheck" in str(finder)])
"""


@pytest.fixture
def torchs(tmp_path):
    """A torch of one line, which no probe can make anything of."""
    (tmp_path / "torch.py").write_text("word = 'fine'\n")
    return tmp_path


def interpreted(folder, *options, evidence, script=SCRIPT, **env):
    """An interpreter that is watched from its start, with an argument that is not UTF-8."""
    paths = [str(Path(startup.__file__).parent), str(folder), str(ROOT)]
    given = {"PYTHONPATH": os.pathsep.join(paths), "DDPCHECK_EVIDENCE": str(evidence), "PATH": os.environ["PATH"]}
    command = [sys.executable, *options, "-c", script, b"caf\xe9"]
    run = subprocess.run(command, cwd=folder, env={**given, **env}, capture_output=True, check=False)
    assert run.returncode == 0, run.stderr
    return run.stdout.decode(), run.stderr.decode()


@pytest.mark.parametrize(
    ("options", "env"),
    [
        ([], {}),
        (["-W", "error"], {"GROUP_RANK": "abc", "RANK": "abc", "LOCAL_RANK": "abc"}),
        (["-P"] if sys.version_info >= (3, 11) else [], {"DDPCHECK_EVIDENCE_LIMIT": "much"}),
        ([], {"DDPCHECK_EVIDENCE": os.devnull}),
    ],
    ids=["plain", "warnings are errors", "no number", "no folder"],
)
def test_torch_is_imported_whatever_becomes_of_recording(torchs, options, env):
    """Nothing is raised and nothing printed; the way that modules are found is as it was."""
    out, err = interpreted(torchs, *options, evidence=torchs, **env)
    assert (out, err) == ("ran fine ['caf\\udce9'] []\n", "")


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ("import nowhere_to_be_found", "nowhere_to_be_found"),
        ("raise ValueError('site')", "ValueError: site"),
        ("", ""),
    ],
)
def test_the_sites_own_startup_fails_as_it_would(torchs, body, words):
    """The interpreter says so as it does without us, and goes on."""
    (torchs / "sitecustomize.py").write_text(body + "\n")
    out, err = interpreted(torchs, evidence=torchs)
    assert out.startswith("ran fine")
    assert words in err
    assert bool(words) == bool(err)


def test_a_removed_working_folder_is_no_hindrance(torchs):
    """The interpreter starts where its folder is gone, and is watched."""
    gone = torchs / "gone"
    gone.mkdir()
    paths = os.pathsep.join([str(Path(startup.__file__).parent), str(torchs), str(ROOT)])
    env = {**os.environ, "PYTHONPATH": paths, "DDPCHECK_EVIDENCE": str(torchs)}
    command = [sys.executable, "-c", SCRIPT]
    shell = ["sh", "-c", f'cd {gone}; rmdir {gone}; exec "$@"', "sh", *command]
    run = subprocess.run(shell, env=env, capture_output=True, text=True, check=False)
    assert (run.returncode, run.stderr) == (0, "")
    assert run.stdout.startswith("ran fine")


FOUND = """
import importlib.util, sys
from ddpcheck.probes import follow_program as following
following._start = lambda: print("watched", sys.modules["torch"].word)
"""
ASKED = [
    "assert importlib.util.find_spec('torch').loader.get_filename('torch').endswith('torch.py')",
    "assert [importlib.util.find_spec('torch') for _ in range(3)]",
    "assert type(importlib.util.find_spec('torch').loader) is importlib.machinery.SourceFileLoader",
    "import pkgutil; assert 'torch' in [found.name for found in pkgutil.iter_modules()]",
    "import pkgutil; assert pkgutil.resolve_name('torch:word') == 'fine'",
    "import importlib.metadata as metadata; list(metadata.distributions())",
    "importlib.invalidate_caches(); importlib.util.find_spec('torch')",
    "import os; os.environ['FAILS'] = '1'\ntry: import torch\nexcept ValueError: del os.environ['FAILS']",
    "spec = importlib.util.find_spec('torch'); lazy = importlib.util.LazyLoader(spec.loader); spec.loader = lazy\n"
    "sys.modules['torch'] = importlib.util.module_from_spec(spec); lazy.exec_module(sys.modules['torch'])",
]


@pytest.mark.parametrize("asked", ASKED)
def test_a_program_may_ask_for_torch_before_it_imports_it(torchs, asked):
    """As transformers and accelerate do: it gets the answer it would get, and is watched once torch is there."""
    (torchs / "torch.py").write_text("import os\nif 'FAILS' in os.environ: raise ValueError\nword = 'fine'\n")
    out, err = interpreted(torchs, evidence=torchs, script=f"{FOUND}\n{asked}\n{SCRIPT}")
    assert err == ""
    assert out == "watched fine\nran fine ['caf\\udce9'] []\n"


OTHER_HOOK = """
import sys
from importlib.machinery import PathFinder

class OtherFinder:
    @classmethod
    def find_spec(cls, name, path=None, target=None):
        if name != "torch":
            return None
        spec = None
        for finder in sys.meta_path[sys.meta_path.index(cls) + 1 :]:
            spec = spec or finder.find_spec(name, path, target)
        own = spec.loader.exec_module

        def exec_module(module):
            own(module)
            del spec.loader.exec_module
            print("told")

        spec.loader.exec_module = exec_module
        return spec

sys.meta_path.insert(WHERE, OtherFinder)
"""


@pytest.mark.parametrize(("where", "first"), [("0", "watched"), ("1", "told")])
def test_another_hook_is_told_of_torch_in_the_same_way(torchs, where, first):
    """It finds its own where it has put it, whether it comes before ours or after it."""
    script = f"{FOUND}\n{OTHER_HOOK.replace('WHERE', where)}\n{SCRIPT}"
    out, err = interpreted(torchs, evidence=torchs, script=script)
    assert err == ""
    both = {"watched": ["watched fine", "told"], "told": ["told", "watched fine"]}[first]
    assert out.splitlines() == [*both, "ran fine ['caf\\udce9'] []"]


def test_a_part_of_torch_is_asked_for(torchs):
    """This imports torch itself, and it is watched."""
    (torchs / "torch.py").unlink()
    (torchs / "torch").mkdir()
    (torchs / "torch" / "__init__.py").write_text("word = 'fine'\n")
    (torchs / "torch" / "distributed.py").write_text("")
    asked = "assert importlib.util.find_spec('torch.distributed').name == 'torch.distributed'"
    out, err = interpreted(torchs, evidence=torchs, script=f"{FOUND}\n{asked}\n{SCRIPT}")
    assert (out, err) == ("watched fine\nran fine ['caf\\udce9'] []\n", "")
