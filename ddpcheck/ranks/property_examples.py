"""The examples of a property, as its ranks run them: one at a time, for all ranks alike.

Between two examples the ranks rest: alive, in their group, with what the
fixtures have set up. In the midst of one they may ask for further choices
(interactive draws, the steps of a state machine). A choice is made in one
place, once all ranks have asked for the same; ranks that ask for different
things are told so, each at the line where it asked.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ddpcheck.ranks import messages
from ddpcheck.ranks.rank_record import WatchedRank
from ddpcheck.vocabulary.model import CheckRun


class Examples:
    """The example that the ranks run, if any.

    It is given what arrives and returns what to send, and never waits.
    """

    def __init__(self, ranks: Sequence[WatchedRank]) -> None:
        self.ranks = ranks
        self.current: messages.Example | None = None
        self.asked: dict[int, messages.Asked] = {}
        self._begun = self._passed_on = self._finished = False
        self._let_go: set[int] = set()

    @property
    def at_rest(self) -> bool:
        """No rank runs anything of the test: nothing can hang."""
        return all(r.resting for r in self.ranks) and not self._finished

    # --- what arrives

    def begin(self, example: messages.Example) -> None:
        self.current, self.asked, self._passed_on = example, {}, False
        for r in self.ranks:
            r.begin_example()

    def follow(self, r: WatchedRank) -> None:
        r.resting = True

    def end(self, r: WatchedRank, ended: messages.ExampleEnded) -> None:
        r.example = ended.end
        self.asked.pop(r.rank, None)
        # A failure for the reader is on its way out of the test; every other end waits for what comes.
        r.resting = not (self.current is not None and self.current.final and ended.end.status == "failed")

    def ask(self, r: WatchedRank, asked: messages.Asked) -> None:
        self.asked[r.rank] = asked

    def give(self, given: messages.Given) -> Iterator[tuple[WatchedRank, messages.Message]]:
        """All ranks have asked for the same, and get the same."""
        waiting, self.asked, self._passed_on = self.asked, {}, False
        return ((r, given) for r in self.ranks if r.rank in waiting)

    def leave(self, r: WatchedRank) -> None:
        """The rank has left the body, and tears down."""
        r.resting = False

    def finish(self) -> None:
        """There are no more examples."""
        self._finished = True

    # --- what follows from it

    def to_ranks(self, failed: bool) -> Iterator[tuple[WatchedRank, messages.Message]]:
        """What ranks are to hear now; with ``failed``, nothing goes on, and no further example comes."""
        asking, apart = [r for r in self.ranks if r.rank in self.asked], self._apart()
        if failed or apart:
            # Where a rank has failed, the others' wait for it is no failure of their own.
            message = messages.Given(stop=True) if failed else messages.Diverged(asked=dict(self.asked))
            self.asked = {}
            yield from ((r, message) for r in asking)
        if failed or self._finished:
            for r in self.ranks:
                if r.resting and r.rank not in self._let_go:
                    self._let_go.add(r.rank)
                    yield r, messages.Finish()

    def _apart(self) -> bool:
        """Whether some ask for what others do not: for something else, or not any more."""
        if not self.asked or self._passed_on:
            return False
        accounted = len(self.asked) + sum(1 for r in self.ranks if r.resting and r.rank not in self.asked)
        alike = len({asked.ask for asked in self.asked.values()}) == 1 and len(self.asked) == len(self.ranks)
        return accounted == len(self.ranks) and not alike

    def to_engine(self, checks: Sequence[CheckRun]) -> messages.Message | None:
        """What the pytest process is to hear now; ``checks`` are those of the current example."""
        if not self._begun and all(r.resting for r in self.ranks):
            self._begun = True
            return messages.AllFollowing()
        if self.current is None:
            return None
        if len(self.asked) == len(self.ranks) and not self._passed_on:
            if len({asked.ask for asked in self.asked.values()}) == 1:
                self._passed_on = True
                return self.asked[0]
            return None
        ends = tuple(r.example for r in self.ranks if r.example is not None)
        if len(ends) == len(self.ranks) and all(end.status != "failed" for end in ends):
            self.current = None
            return messages.ExampleOver(
                ends=ends, checks=tuple(checks), noted=tuple(tuple(r.noted) for r in self.ranks)
            )
        return None
