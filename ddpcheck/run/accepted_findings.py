"""What a project accepts, taken out of the findings that are shown while a run goes on, and of its verdict."""

from __future__ import annotations

import traceback
from collections.abc import Iterable

from msgspec.structs import replace

from ddpcheck.acceptance import baseline as baselines
from ddpcheck.acceptance.accepted_verdict import new_baseline, with_accepted
from ddpcheck.acceptance.line_comments import LineComments
from ddpcheck.acceptance.rules import Rules, accepted
from ddpcheck.evidence import Site
from ddpcheck.judging.world import Process
from ddpcheck.report.report_files import Unwritable
from ddpcheck.run.options import Options
from ddpcheck.verdict.interim import Interim
from ddpcheck.verdict.verdict import Verdict
from ddpcheck.vocabulary.model import Finding
from ddpcheck.vocabulary.wording import count


class WhileRunning:
    """Which findings of a run that goes on count, as far as can be said of each by itself."""

    def __init__(self, rules: Rules) -> None:
        self._rules = rules
        self._comments = LineComments("", {})

    def counts(self, finding: Finding, known: Interim) -> bool:
        """Whether nobody accepts it.

        One whose line is not known yet waits for the report, where something accepts findings of its check.
        """
        if finding.where is None and self._rules.concern(finding):
            return False
        if self._comments.folder != known.folder:
            self._comments = LineComments(known.folder, {})
        self._comments.learn(known.lines)
        return accepted(finding, self._rules, self._comments, known.folder) is None


def without_accepted(options: Options, verdict: Verdict, processes: Iterable[Process], cut_short: bool) -> Verdict:
    """The verdict without what is accepted; with all of it, where that fails for a reason of ours.

    Advisories are in it if they were asked for.
    ``cut_short`` is a run that was ended at its first error.
    """
    try:
        sites = [site for process in processes for site in process.of(Site)]
        rules, notes = options.rules, verdict.notes
        if options.write_baseline:
            written = new_baseline(verdict, rules, sites, cut_short)
            try:
                baselines.write(written)
            except Unwritable as error:
                verdict = replace(verdict, lost=(*verdict.lost, str(error)))
            else:
                rules = replace(rules, baseline=written)
                entries = count(len(written.entries), "entry", "entries")
                notes = (*notes, f"{written.path} was written, with {entries}; each may be given a reason there.")
        verdict = with_accepted(replace(verdict, notes=notes), rules, sites, cut_short)
    except Exception:
        verdict = replace(verdict, internal=(*verdict.internal, traceback.format_exc().strip()))
    return verdict if options.advise else replace(verdict, advisories=None)
