"""The fix of a finding in the terms of the library that has set up the training, where the check knows it."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec.structs import replace

from ddpcheck.checks.registry import checks, part
from ddpcheck.judging import training_library
from ddpcheck.judging.world import Judged, World
from ddpcheck.vocabulary.model import Finding


def in_its_terms(judged: Judged, world: World) -> Judged:
    """The same findings, each with the fix of its library."""
    if not judged.findings:
        return judged
    return replace(judged, findings=tuple(_translated(finding, world) for finding in judged.findings))


def _translated(finding: Finding, world: World) -> Finding:
    module = part(finding.check, "libraries") if finding.check in checks() else None
    # A library of the line's own (metrics, checkpoints) may have no word for it where that of the training has.
    libraries = [one for one in (training_library.of_place(finding.where), training_library.of_world(world)) if one]
    if module is None or not libraries:
        return finding
    fixes: Mapping[str, Mapping[str, str]] = module.FIXES
    advice = finding.advice
    for usual, terms in fixes.items():
        advice = advice.replace(usual, next((terms[one] for one in libraries if one in terms), usual))
    return replace(finding, advice=advice)
