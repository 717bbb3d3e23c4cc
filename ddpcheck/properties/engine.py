"""The engine of a property: hypothesis itself, in the pytest process, around a body that runs in ranks.

Only the innermost function is another: it sends the example to the ranks, and
turns what came of it into what it would have been here. So seeds, profiles,
the database, explicit examples, phases and reports are hypothesis' own.

PYTEST_DONT_REWRITE (its own assertions are for its authors)
"""

from __future__ import annotations

import contextlib
import datetime
import functools
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from hypothesis import Phase, Verbosity, core, settings
from hypothesis.control import current_build_context
from hypothesis.errors import UnsatisfiedAssumption
from hypothesis.internal.intervalsets import IntervalSet
from hypothesis.reporting import report

from ddpcheck.examples.choices import ask_of, pack, packed, plain
from ddpcheck.examples.explicit_examples import explicit_examples
from ddpcheck.examples.failure_origins import raise_again
from ddpcheck.examples.random_streams import put_back_once
from ddpcheck.properties.example_verdict import ExampleVerdict, verdict_of_ends, verdict_of_run
from ddpcheck.properties.living_ranks import LivingRanks
from ddpcheck.ranks import messages
from ddpcheck.vocabulary.model import CallSite, ExampleEnd, Origin, RunRecord

DEFAULT_DEADLINE = datetime.timedelta(milliseconds=200)


class RunOver(BaseException):
    """The ranks cannot run any example: not the example has failed. Passes through hypothesis."""

    def __init__(self, record: RunRecord) -> None:
        super().__init__()
        self.record = record


class Skipped(BaseException):
    """All ranks have skipped. Passes through hypothesis, which would skip as well."""

    def __init__(self, text: str, where: CallSite | None) -> None:
        super().__init__(text)
        self.text, self.where = text, where


class _Returned:
    """What the body has returned in a rank, for hypothesis to complain of."""

    def __init__(self, text: str) -> None:
        self.text = text

    def __repr__(self) -> str:
        return self.text


class Engine:
    """Runs the property of one item over ranks that live as long as their examples pass."""

    def __init__(self, item: pytest.Function, ranks: LivingRanks) -> None:
        self.item, self.ranks = item, ranks
        self.function: Any = getattr(item.obj, "__func__", item.obj)
        path, line, _ = item.reportinfo()
        self.test = CallSite(file=str(path), line=(line or 0) + 1, function=item.originalname)
        self.known: list[Origin] = []
        self._stopped: BaseException | None = None

    def run(self, fixtures: Mapping[str, Any], explain: bool) -> None:
        """Run the property to its end; raises what hypothesis raises, `RunOver` or `Skipped`."""
        with self._in_place(explain), put_back_once():
            bound = getattr(self.item.obj, "__self__", None)
            self.function(*(() if bound is None else (_runner(bound),)), **fixtures)

    @contextlib.contextmanager
    def _in_place(self, explain: bool) -> Iterator[None]:
        """Put our function in the body's place, and settings that fit ranks in that of the test's."""
        function, handle = self.function, self.function.hypothesis
        inner, own = handle.inner_test, function._hypothesis_internal_use_settings
        state: Any = core.StateForActualGivenExecution
        tracing = state._should_trace
        handle.inner_test = functools.wraps(inner)(lambda *args, **kwargs: self._body(kwargs))
        function._hypothesis_internal_use_settings = _fitting(own, explain)
        # The lines that an example runs are in the ranks: those here would explain nothing.
        state._should_trace = lambda _: False
        try:
            yield
        finally:
            state._should_trace = tracing
            handle.inner_test, function._hypothesis_internal_use_settings = inner, own

    # --- one example

    def _body(self, kwargs: Mapping[str, Any]) -> Any:
        context = current_build_context()
        data = context.data
        explicit = None if data.draw_times else self._explicit(kwargs)
        example = messages.Example(
            choices=[] if explicit is not None else pack(data.choices),
            explicit=explicit,
            final=context.is_final,
            verbose=settings.default.verbosity >= Verbosity.verbose,  # type: ignore[union-attr]
        )
        self._stopped = None
        told = self.ranks.run(example, functools.partial(self._answer, data))
        if isinstance(told, RunRecord):
            return self._ended(data, example, told)
        for lines in _noted(told.noted):
            report(lines)
        if self._stopped is not None:
            raise self._stopped
        ends = dict(enumerate(told.ends))
        verdict = verdict_of_ends(ends, self.test)
        if verdict.kind == "failed":
            self.ranks.finish()  # one that has left early may owe the others something
        return self._concluded(data, ends, verdict, None)

    def _ended(self, data: Any, example: messages.Example, record: RunRecord) -> Any:
        """The ranks have ended with the example."""
        if self._stopped is not None:
            raise self._stopped
        for lines in _noted([e.noted for e in record.endings]):
            report(lines)
        verdict = verdict_of_run(record, self.test, self.known)
        if verdict.kind == "over":
            raise RunOver(record)
        ends = {e.rank: e.example for e in record.endings if e.example is not None}
        return self._concluded(data, ends, verdict, record if example.final else None)

    def _concluded(
        self, data: Any, ends: Mapping[int, ExampleEnd], verdict: ExampleVerdict, record: RunRecord | None
    ) -> Any:
        """Have the example end here as it has in the ranks."""
        if 0 in ends and not data.frozen:
            data.events.update(ends[0].events)
            data.target_observations.update(ends[0].targets)
            _replay(data, ends[0].spans)
        match verdict.kind:
            case "passed":
                returned = next((end.returned for end in ends.values() if end.returned), "")
                return _Returned(returned) if returned else None
            case "skipped":
                raise Skipped(verdict.text, verdict.where)
            case "failed":
                assert verdict.origin is not None
                if verdict.origin not in self.known:
                    self.known.append(verdict.origin)
                raise_again(verdict.origin, verdict.text, traceback=verdict.traceback, record=record)
            case _:
                rejected = UnsatisfiedAssumption(verdict.text or None)
                if verdict.where is not None and hasattr(rejected, "location"):
                    rejected.location = f"{verdict.where.file}:{verdict.where.line}"
                raise rejected
        return None

    def _answer(self, data: Any, asked: messages.Asked) -> messages.Given:
        """Make the choice that all ranks have asked for; where there is none to be had, the example stops."""
        ask = ask_of(asked.ask)
        try:
            _replay(data, ask.spans)
            constraints = {name: plain(value, IntervalSet) for name, value in ask.constraints.items()}
            choice = getattr(data, f"draw_{ask.kind}")(**constraints, forced=plain(ask.forced))
        except BaseException as stopped:
            self._stopped = stopped
            return messages.Given(stop=True)
        return messages.Given(choice=packed(choice))

    def _explicit(self, kwargs: Mapping[str, Any]) -> int | None:
        """The number of the explicit example with these very values."""
        for number, example in enumerate(explicit_examples(self.function)):
            if all(kwargs.get(name) is value for name, value in example.items()):
                return number
        return None


def _replay(data: Any, spans: tuple[int | bool, ...]) -> None:
    """Have the structure here that the draws have in the ranks: it is what shrinking goes by."""
    for span in spans:
        if isinstance(span, bool):
            data.stop_span(discard=span)
        else:
            data.start_span(span)


def _noted(noted: Any) -> Iterator[str]:
    """What ranks have noted: once where all say the same, else under their numbers."""
    by_rank = [tuple(lines) for lines in noted]
    if not by_rank:
        return
    if len(set(by_rank)) == 1:
        yield from by_rank[0]
        return
    common = 0
    while len({lines[: common + 1] for lines in by_rank}) == 1:
        common += 1
    yield from by_rank[0][:common]
    for rank, lines in enumerate(by_rank):
        yield from (f"rank {rank}: {line}" for line in lines[common:])


def _runner(bound: Any) -> Any:
    """What stands for the test's instance: its hooks around an example run in the ranks alone."""
    if any(hasattr(bound, name) for name in ("execute_example", "setup_example", "teardown_example")):
        return _NoRunner(bound)
    return bound


class _NoRunner:
    def __init__(self, bound: Any) -> None:
        self._text = f"<{type(bound).__qualname__}, one in each rank>"

    def __repr__(self) -> str:
        return self._text


def _fitting(own: settings, explain: bool) -> settings:
    """The test's settings, less what would judge the ranks' pace by that of one process.

    An example is 200 ms late as soon as ranks are started for it; the mark's
    timeout is what it may take. Explaining runs a failing example hundreds of
    times: with ranks, which a failure ends, for minutes.
    """
    changes: dict[str, Any] = {}
    if own.deadline == DEFAULT_DEADLINE:
        changes["deadline"] = None
    if not explain and Phase.explain in own.phases:
        changes["phases"] = [phase for phase in own.phases if phase is not Phase.explain]
    return settings(parent=own, **changes) if changes else own
