"""What a check says of itself: the value ``CHECK`` in the ``__init__`` of its folder."""

from __future__ import annotations

from typing import Literal, NamedTuple

LAST = 1000


class Rule(NamedTuple):
    """One way in which an invariant is broken, as the findings of it say."""

    name: str
    says: str
    """What is wrong where it fires, as a clause: what ``ddpcheck checks`` lists."""
    advisory: bool = False
    """Its findings are advisories: it decides by names, source text or taste, which proves nothing."""


OF_ASSERTIONS = (
    Rule("unequal-assertion-calls", "some ranks call an assertion that other ranks do not call"),
    Rule("missing-evidence", "the evidence that the assertion rests on is not there"),
    Rule("nothing-to-compare", "ranks have nothing in common, or no two epochs, to compare"),
)
"""Rules of every check that has assertions: of the calls of any assertion; the last one is found by its judge."""


ORIGINS = (
    "checkpoint-load-complete", "checkpoint-read-after-write", "process-hygiene", "batch-count", "reducer-coverage",
    "collective-order",
)  # fmt: skip
"""Checks of which a finding may be why ranks that train one model differ."""
GROUPS = ("groups", "wrappers", "uneven inputs")
"""What probes must see for it to be known which ranks belong together."""
CALLS = ("collectives", "forwards", "backwards", "armed forwards", "reduced parameters", "reductions")
"""And for it to be known when ranks reduce what."""
CALL_ENDS = ("broadcasts of buffers", "leaving", "unfinished calls")
"""And for it to be known that they make no other call."""


class Check(NamedTuple):
    """One invariant: when it holds, where it stands among the others, and what has to be seen to judge it."""

    holds: str
    """When it holds, as a clause: what ``ddpcheck checks`` lists."""
    order: int = LAST
    """Its place in every list, and among findings of one severity: what causes others comes before them."""
    severity: Literal["error", "warning"] = "error"
    """The worst that a finding of it can be."""
    unit: str = "time"
    """What its coverage counts, in the singular: a window, a save, a pass."""
    counted: bool = True
    """It is known how many of these a run had, and not only how many were compared."""
    rules: tuple[Rule, ...] = ()
    """What a finding of it can say, each by a name of its own; the registry adds OF_ASSERTIONS."""
    follows: tuple[str, ...] = ()
    """The checks of which a finding may be the cause of a finding of this one, where both concern the same thing."""
    rests_on: tuple[str, ...] = ()
    """What probes must see for a run to be judged, by names of ``ddpcheck.seams``; the ranks go without saying."""
    asserted_on: tuple[str, ...] = ()
    """The same for its assertions."""
    assertions: tuple[str, ...] = ()
    """The assertions that hold it inside a ``ddp`` test."""
    of_endings: bool = False
    """It is about how a program ends: every program shows it, and one that was interrupted does not."""
    compares_ranks: bool = True
    """Else it is of each rank by itself: that it holds does not alone make a run that was checked."""
    stops: bool = False
    """A finding of it says why a program came to a stop: it is reported whichever checks were chosen."""
    told_at_end: bool = False
    """What follows may explain a finding of it otherwise: none is told while the program runs."""
