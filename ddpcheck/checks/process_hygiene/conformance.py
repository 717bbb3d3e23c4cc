"""`process-hygiene` over trainings: no thread and no process is there when fit has returned."""

from __future__ import annotations

from collections.abc import Sequence

from ddpcheck.judging.world import Judged
from ddpcheck.trainings.suite_row import ANY, Row
from ddpcheck.trainings.trained_situation import Trained
from ddpcheck.vocabulary.model import Finding
from ddpcheck.vocabulary.wording import listing, ranks_text


def judge(trained: Sequence[Trained]) -> Judged:
    """`process-hygiene`: no thread and no process of a training is there when fit has returned."""
    findings = []
    for one in trained:
        left = list(dict.fromkeys(f"a {left.kind} ({left.name})" for left in one.record.leftovers))
        if left and not one.failed:
            ranks = sorted({left.rank for left in one.record.leftovers if left.rank is not None})
            findings.append(
                Finding(
                    rule="running-after-fit",
                    ranks=tuple(ranks),
                    subject=f"fit(job), {one.situation.about}",
                    expected="nothing to be left running when fit has returned",
                    found=f"{listing(left, 3)} on {ranks_text(ranks) if ranks else 'some rank'}",
                    advice="End and join what the trainer has started before fit returns.",
                )
            )
    return Judged(checked=len(trained), findings=tuple(findings[:1]))


ROWS = (Row("process-hygiene", (ANY,), judge, also_failed=True),)
