"""The judge of rng-independence, over ranks that put random states back."""

from __future__ import annotations

from ddpcheck import evidence as ev
from ddpcheck.checks.rng_independence.run import judge
from tests.judging.loaded import digest
from tests.judging.written import ended, world

SEEDED, RESTORED, FORWARD = 7, 8, 30
LINES = {SEEDED: "torch.manual_seed(rank)", RESTORED: "torch.set_rng_state(state)"}


def forwards(*states, restored=2, model=1):
    """A rank's forwards, whose state a line has put back before the one with this number."""
    return [
        (
            ev.Stream,
            {
                "kind": "torch", "where": "forward", "number": number, "state": digest(state), "consumed": True,
                "site": FORWARD, "model": model, "seeded": RESTORED if number >= restored else SEEDED,
            },
        )
        for number, state in enumerate(states)
    ]  # fmt: skip


def said(*ranks):
    return judge(world(*[[*own, ended()] for own in ranks], lines=LINES))


def test_one_rank_s_state_on_several():
    """They drew apart before, and so they are meant to."""
    (finding,) = said(forwards("a", "b", "e", "f"), forwards("c", "d", "e", "f")).findings
    assert (finding.severity, finding.ranks, finding.where.line, finding.count) == ("warning", (0, 1), RESTORED, 2)
    assert [line.line for _, line in finding.proof] == [FORWARD]


def test_each_rank_s_own_state():
    """It is held."""
    judged = said(forwards("a", "b", "c", "d"), forwards("e", "f", "g", "h"))
    assert (judged.checked, judged.findings) == (2, ())


def test_ranks_that_drew_alike_before():
    """Peers that compute the same need the same mask."""
    assert said(forwards("a", "b", "a", "b"), forwards("a", "b", "a", "b")).findings == ()


def test_states_that_nobody_has_put_back():
    """A seed that is set in training is another matter."""
    ranks = [forwards(*states, restored=9) for states in (("a", "b", "e", "f"), ("c", "d", "e", "f"))]
    judged = said(*ranks)
    assert (judged.checked, judged.findings) == (0, ())


def test_a_single_forward():
    """It may be a rehearsal."""
    assert said(forwards("a", "b", "e", "f"), forwards("c", "d", "e", "g")).findings == ()
