"""Sessions: the tests, over torch versions too, the checks of the code, and the measurements.

``nox -s tests`` and the other sessions make environments of their own. The
development version of torch is read from pyproject.toml, so that it stands in
one place.
"""

from __future__ import annotations

import importlib.util
import sys

import nox

nox.options.sessions = ["lint", "typing", "tests"]
nox.options.reuse_existing_virtualenvs = True

PYPROJECT = nox.project.load_toml("pyproject.toml")
DEV = PYPROJECT["project"]["optional-dependencies"]["dev"]
TORCH = next(requirement for requirement in DEV if requirement.startswith("torch=="))

VERSIONS = {
    "2.4.1": "3.10",
    "2.6.0": "3.11",
    "2.9.1": "3.12",
    "2.13.0": "3.11",
    "2.15.0": "3.13",
}
"""torch versions of the matrix, and a Python that each supports; together they cover all Pythons."""

LIBRARIES = ["accelerate>=1.15", "lightning>=2.6", "torchdata>=0.11", "torchmetrics>=1.9", "transformers>=5.23"]
"""Training libraries of which tests/libraries knows what holds: accelerate resumed in the wrong order before."""


LAUNCHERS = ["accelerate>=1.15", "deepspeed>=0.19", "ray[train]>=2.60", "ipykernel>=7", "nbconvert>=7.17"]
"""What starts ranks, as tests/launchers tries it."""


@nox.session(python="3.11")
def tests(session: nox.Session) -> None:
    """The suite, on the development version of torch, with the tests that take long; arguments go to pytest."""
    session.install("-e", ".[dev]")
    session.run("pytest", "-n", "2", "--dist", "loadfile", "--long", *session.posargs)


@nox.session
@nox.parametrize(
    ("python", "torch"),
    [(python, torch) for torch, python in VERSIONS.items()],
    ids=[f"torch-{torch}" for torch in VERSIONS],
)
def versions(session: nox.Session, torch: str) -> None:
    """The suite over torch versions; CUDA builds, except where the index has a CPU build alone."""
    session.install(f"torch=={torch}", "-e", ".[test]")
    session.run("pytest", "-n", "2", "--dist", "loadfile", "--long", *session.posargs)


@nox.session(python="3.10")
def oldest(session: nox.Session) -> None:
    """The suite on the oldest pytest and hypothesis that the package admits."""
    session.install(TORCH, "pytest==8.2.*", "hypothesis==6.131.*", "-e", ".[test]")
    session.run("pytest", "-n", "2", "--dist", "loadfile", "--long", *session.posargs)


def _python_here() -> str:
    """The Python of the environment that is there: nox's own, where that has torch, and else the first on PATH."""
    return sys.executable if importlib.util.find_spec("torch") else "python"


@nox.session(venv_backend="none")
def new_check(session: nox.Session) -> None:
    """Write the skeleton of a check, whose tests run at once: ``nox -s new_check -- my-invariant``."""
    session.run(_python_here(), "-m", "tests.skeleton.new_check", *session.posargs, external=True)


@nox.session(python="3.11")
def docs(session: nox.Session) -> None:
    """Build the site into build/site, with warnings as errors; arguments go to sphinx-build."""
    session.install("-e", ".[dev]")
    session.run(
        "sphinx-build", "-W", "--keep-going", "-n", "-d", "build/doctrees", *session.posargs, "docs", "build/site"
    )


@nox.session(python="3.11")
def check_texts(session: nox.Session) -> None:
    """Ask the command what it reports of the checks' programs, and make docs/checks.md; ids as arguments."""
    session.install("-e", ".[dev]")
    session.run("python", "-m", "tests.programs.document", *session.posargs)


@nox.session(python="3.11")
def page(session: nox.Session) -> None:
    """The page of a run in a real headless Chromium, which the machine has to have (apt-get install chromium)."""
    session.install("-e", ".[dev]", "playwright")
    session.run("pytest", "tests/report/page", "--long", *session.posargs)


@nox.session(python="3.11")
def example_pages(session: nox.Session) -> None:
    """Make docs/pages anew: names of programs in fixtures/pages as arguments, or none for all."""
    session.install("-e", ".[dev]")
    session.run("python", "-m", "tests.programs.example_pages", *session.posargs)


@nox.session(python="3.11")
def comparison(session: nox.Session) -> None:
    """What other tools say of the checks' faulty programs, into docs/comparison.md; a quarter of an hour."""
    accelerate = next(one for one in LIBRARIES if one.startswith("accelerate"))
    session.install(TORCH, accelerate, "-e", ".[test]")
    session.run("python", "-m", "tests.comparison.other_tools", "--markdown", *session.posargs)


@nox.session(python="3.11")
def lint(session: nox.Session) -> None:
    """ruff: rules and format; and which folder imports which."""
    session.install("ruff", "import-linter", "-e", ".")
    session.run("ruff", "check", ".")
    session.run("ruff", "format", "--check", ".")
    session.run("lint-imports")


@nox.session(python="3.11")
def typing(session: nox.Session) -> None:
    """mypy, strict, over package and programs."""
    session.install("-e", ".[dev]")
    session.run("mypy")


@nox.session(python="3.11")
def coverage(session: nox.Session) -> None:
    """The suite under coverage: lines that run only in ranks are counted too."""
    session.install("-e", ".[dev]")
    session.run("coverage", "erase")
    session.run("coverage", "run", "-m", "pytest", *session.posargs)
    session.run("coverage", "combine", "-q")
    session.run("coverage", "report")


@nox.session(python="3.11")
def bench(session: nox.Session) -> None:
    """The figures, side by side with torch's own test cases, as ratios."""
    session.install("-e", ".[dev]", "expecttest")
    session.run("python", "tests/bench/bench.py", *session.posargs)


@nox.session(name="gpu-looks", python="3.11")
def gpu_looks(session: nox.Session) -> None:
    """What a look at a model on a GPU costs, counted without one: kernels, bytes moved, waits, and the slow-down."""
    session.install("-e", ".[dev]")
    session.run("python", "-m", "tests.bench.gpu_looks", *session.posargs)


@nox.session(python="3.11")
def record(session: nox.Session) -> None:
    """Run every program that is not recorded yet, and keep its evidence; with names or patterns, these anew."""
    session.install("-e", ".[dev]")
    session.run("python", "-m", "tests.recordings.record", *session.posargs)


@nox.session(python="3.11")
def replay(session: nox.Session) -> None:
    """Judge all recordings without ranks, and write the matrix; ``-- --renamed`` compares with other names."""
    session.install("-e", ".[dev]")
    session.run("python", "-m", "tests.recordings.replay", *session.posargs)


@nox.session(python="3.11")
def said(session: nox.Session) -> None:
    """Compare what is said of the programs of fixtures/cases/said with what is so; names of programs as arguments."""
    session.install("-e", ".[dev]")
    session.run("python", "fixtures/cases/said/check.py", *session.posargs)


@nox.session(python="3.11")
def corpus(session: nox.Session) -> None:
    """Every program of the corpus under ``ddpcheck run`` itself, in interpreters; a quarter of an hour and more."""
    session.install("-e", ".[dev]")
    session.run("python", "tests/corpus/table.py", "--command", *session.posargs)
    session.run("pytest", "tests/corpus/test_documents.py", "--long")


@nox.session(python="3.11")
def differential(session: nox.Session) -> None:
    """Ninety programs and surroundings under torchrun and under ``ddpcheck run``: half an hour; names as arguments."""
    session.install("-e", ".[dev]")
    session.run("python", "-m", "tests.command.differing", *session.posargs)


@nox.session(python="3.11")
def libraries(session: nox.Session) -> None:
    """The conformance suite on accelerate, Lightning and a plain loop, and as tables; arguments go to pytest."""
    session.install(TORCH, *LIBRARIES, "-e", ".[test]")
    session.run("pytest", "tests/libraries", *session.posargs)
    if not session.posargs:
        session.run("python", "tests/libraries/table.py")


@nox.session(python="3.11")
def launchers(session: nox.Session) -> None:
    """`ddpcheck run` in front of every launcher; Open MPI's mpirun has to be there already, or is left out."""
    session.install(TORCH, *LAUNCHERS, "-e", ".[test]")
    session.run("pytest", "tests/launchers", "--long", *session.posargs)


@nox.session(python="3.11")
def kills(session: nox.Session) -> None:
    """Thousands of kills in the midst of saves, right ones and wrong ones; each verdict is held to the truth."""
    session.install("-e", ".[dev]")
    session.run("python", "tests/checkpoints/many_kills.py", *session.posargs)


@nox.session(python="3.11")
def twins(session: nox.Session) -> None:
    """The whole conformance suite on the right twin of every faulty trainer; a minute for each."""
    session.install("-e", ".[dev]")
    session.run("python", "-m", "tests.conformance.sweep", *session.posargs)


@nox.session(python="3.11")
def soak(session: nox.Session) -> None:
    """Two thousand tests with every kind of ending among them, and sessions that are interrupted."""
    session.install("-e", ".[dev]")
    session.run("python", "tests/soak/soak.py", *session.posargs)
    session.run("python", "tests/soak/interrupt.py")


@nox.session(python="3.11")
def long_run(session: nox.Session) -> None:
    """The command's memory over 100,000 simulated steps of 32 ranks; what ranks write of 1,000 parameters: hours."""
    session.install("-e", ".[dev]")
    session.run("python", "-m", "tests.soak.evidence_size")
    session.run("python", "-m", "tests.soak.long_run", *session.posargs)


@nox.session(python="3.11")
def promptness(session: nox.Session) -> None:
    """From the first wrong step of each fault of the corpus to its finding on the terminal; four minutes."""
    session.install("-e", ".[dev]")
    session.run("python", "-m", "tests.corpus.promptness", *session.posargs)


@nox.session(python="3.11")
def placement(session: nox.Session) -> None:
    """Ten thousand random programs on simulated devices, each against the table of real rules."""
    session.install("-e", ".[dev]")
    session.run("python", "-m", "tests.devices.soak_placement", *session.posargs)


@nox.session(venv_backend="none")
def gpu(session: nox.Session) -> None:
    """The tests that need a GPU, in the environment that is there, and all about them in one file; see docs/gpu."""
    session.run(_python_here(), "-m", "tests.gpu.record", *session.posargs, external=True)
