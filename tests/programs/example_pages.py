"""Makes docs/pages: a deadlock, diverged gradients and a run that held, as ``ddpcheck run --page`` shows them.

``python -m tests.programs.example_pages`` runs the programs of fixtures/pages anew; with ``--restyle`` the pages get
the style and the scripts of today, and nothing is run. Times differ from run to run;
the names of this machine's folders and of its host do not get into the pages.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

from ddpcheck.report.page import page
from ddpcheck.verdict.verdict import Verdict

ROOT = Path(__file__).parents[2]
PROGRAMS = ROOT / "fixtures" / "pages"
PAGES = ROOT / "docs" / "pages"
RANKS = 4


def make(program: Path, page: Path) -> None:
    """Run a program in a folder of its own, and write its page."""
    with tempfile.TemporaryDirectory() as folder:
        shutil.copy(program, folder)
        made = Path(folder) / "page.html"
        command = [sys.executable, "-m", "ddpcheck.cli", "run", "--page", str(made), "--standalone"]
        command += ["--nproc-per-node", str(RANKS), program.name]
        subprocess.run(command, cwd=folder, check=False, env={**os.environ, "OMP_NUM_THREADS": "1"})
        page.write_text(neutral(made.read_text(encoding="utf-8"), folder), encoding="utf-8")


def neutral(text: str, folder: str) -> str:
    """The page without the names of this machine."""
    names = {
        os.path.realpath(folder): "/job",
        folder: "/job",
        sys.prefix: "/python",
        sys.base_prefix: "/python",
        str(ROOT): "/ddpcheck",
    }
    for name in sorted(names, key=len, reverse=True):
        text = text.replace(name, names[name])
    return text.replace(f'"{socket.gethostname()}"', '"node0"')


def restyled(text: str) -> str:
    """The page with the style and the scripts of today: what was run is as it was."""
    now = page.html(Verdict(verdict="held", world_size=0, checks={}))
    head, _, rest = text.partition("<style>")
    body = rest.partition("</style>")[2].rpartition("<script>")[0]
    style = now.partition("<style>")[2].partition("</style>")[0]
    return f"{head}<style>{style}</style>{body}<script>{now.rpartition('<script>')[2]}"


if __name__ == "__main__":
    PAGES.mkdir(exist_ok=True)
    if sys.argv[1:] == ["--restyle"]:
        for known in PAGES.glob("*.html"):
            known.write_text(restyled(known.read_text(encoding="utf-8")), encoding="utf-8")
        sys.exit()
    chosen = sys.argv[1:] or [path.stem for path in sorted(PROGRAMS.glob("*.py"))]
    for name in chosen:
        make(PROGRAMS / f"{name}.py", PAGES / f"{name}.html")
