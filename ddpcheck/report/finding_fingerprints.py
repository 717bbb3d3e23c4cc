"""What makes a finding the same one in the next run, wherever its line has moved to."""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Iterable, Sequence

from ddpcheck.report.repository_paths import Repository
from ddpcheck.report.source_lines import Sources
from ddpcheck.vocabulary.model import Finding

# A parameter's digits are in words of it ("net2.weight"); numbers by themselves count what a run happens to have.
_NUMBERS = re.compile(r"(?<![\w.])\d[\d,.]*(?!\w)")


def fingerprints(findings: Iterable[Finding], repository: Repository, sources: Sources) -> list[str]:
    """One for each finding, no two of them alike: of check, file, function and the text of the line.

    Line numbers, ranks, steps and counts are left out. What has no line is told
    by what it is about.
    """
    seen: Counter[str] = Counter()
    found = []
    for finding in findings:
        digest = _digest(_parts(finding, repository, sources))
        seen[digest] += 1
        # The second one on a line is known by its place among them.
        found.append(digest if seen[digest] == 1 else _digest([digest, str(seen[digest])]))
    return found


def _parts(finding: Finding, repository: Repository, sources: Sources) -> list[str]:
    where = finding.where
    if where is None:
        return [finding.check, _NUMBERS.sub("#", finding.subject)]
    path = repository.path_of(where.file) or where.file
    return [finding.check, path, where.function, " ".join(sources.line(where).split())]


def _digest(parts: Sequence[str]) -> str:
    return hashlib.sha256("\0".join(parts).encode("utf-8", "backslashreplace")).hexdigest()[:32]
