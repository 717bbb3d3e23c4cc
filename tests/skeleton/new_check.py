"""Writes the skeleton of a check: its folder, a faulty program with a correct twin, and tests that run at once.

``python -m tests.skeleton.new_check my-invariant``, or ``nox -s new_check -- my-invariant``. It overwrites nothing.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
TEMPLATES = Path(__file__).parent / "templates"
PLACES = {
    "check.py.txt": "ddpcheck/checks/{folder}/__init__.py",
    "run.py.txt": "ddpcheck/checks/{folder}/run.py",
    "explanation.md.txt": "ddpcheck/checks/{folder}/explanation.md",
    "faulty.py.txt": "fixtures/{folder}/faulty.py",
    "correct.py.txt": "fixtures/{folder}/correct.py",
    "reported.txt": "fixtures/{folder}/reported.txt",
    "package.py.txt": "tests/checks/{folder}/__init__.py",
    "test_run.py.txt": "tests/checks/{folder}/test_run.py",
}
"""By template, where it goes."""


def new_check(check: str, root: Path = ROOT) -> list[Path]:
    """Write the files of a check; raises ValueError for an id that is none, or that there is already."""
    if not re.fullmatch(r"[a-z][a-z0-9]*(-[a-z0-9]+)+", check):
        raise ValueError(
            f"{check!r} is no id of a check: expected words in lower case with hyphens, such as gradient-sync"
        )
    folder = check.replace("-", "_")
    places = {template: root / place.format(folder=folder) for template, place in PLACES.items()}
    there = [place for place in places.values() if place.exists()]
    if there:
        raise ValueError(f"there is a check {check} already: {there[0].relative_to(root)}")
    for template, place in places.items():
        place.parent.mkdir(parents=True, exist_ok=True)
        text = (TEMPLATES / template).read_text()
        place.write_text(text.replace("my-invariant", check).replace("my_invariant", folder))
    return list(places.values())


def main(arguments: list[str]) -> int:
    """Write one skeleton, and say what comes next."""
    if len(arguments) != 1:
        print("name one check: nox -s new_check -- my-invariant", file=sys.stderr)
        return 2
    try:
        written = new_check(arguments[0])
    except ValueError as error:
        print(error, file=sys.stderr)
        return 2
    folder = arguments[0].replace("-", "_")
    print("\n".join(str(path.relative_to(ROOT)) for path in written))
    print("\nIt works as it stands. Try it, then make it yours:")
    print(f"  pytest tests/checks/{folder} tests/programs -k '{folder} or {arguments[0]}'")
    print(f"  ddpcheck run --standalone --nproc-per-node 2 fixtures/{folder}/faulty.py")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
