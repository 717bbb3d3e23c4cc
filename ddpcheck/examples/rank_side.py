"""A rank of a property: it runs the test's body for every example that it is sent, and says how each has ended.

The engine is elsewhere. Here an example is drawn once more, from the same
choices by the same strategies; what the body draws as it goes is asked for.

PYTEST_DONT_REWRITE (its own assertions are for its authors)
"""

from __future__ import annotations

import functools
import inspect
import os
import random
import sys
import traceback
import types
import unittest
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, Verbosity, core, settings
from hypothesis.errors import HypothesisException, StopTest, UnsatisfiedAssumption
from hypothesis.internal.conjecture.data import ConjectureData, Status
from hypothesis.internal.escalation import get_trimmed_traceback
from hypothesis.reporting import with_reporter

from ddpcheck.examples.choices import ask_bytes, ask_of, plain, unpack
from ddpcheck.examples.explicit_examples import explicit_examples
from ddpcheck.examples.failure_origins import is_engine, is_ours, origin_of
from ddpcheck.examples.random_streams import put_back_once
from ddpcheck.judging.values_by_key import by_key
from ddpcheck.ranks import messages
from ddpcheck.ranks.channel import Channel, Closed
from ddpcheck.ranks.current_rank import current
from ddpcheck.vocabulary.clock import clock
from ddpcheck.vocabulary.frame_lines import line_of
from ddpcheck.vocabulary.lost_peers import is_reaction
from ddpcheck.vocabulary.model import CallSite, ExampleEnd
from ddpcheck.vocabulary.wording import ranks_text

_SKIPS = (pytest.skip.Exception, unittest.SkipTest)
_MOST_TRACEBACK = 6000


class RanksDrewDifferently(AssertionError):
    """Ranks asked for different choices in the midst of an example; raised on all that asked."""


RanksDrewDifferently.__module__ = "ddpcheck"


class FollowingData(ConjectureData):
    """Draws what it is told to draw, and asks where that ends."""

    _in_body = False

    def __init__(self, choices: list[Any], ask: Callable[[bytes], Any]) -> None:
        self._spans: list[int | bool] = []
        super().__init__(random=None, prefix=choices)
        self._told = len(choices)
        self._ask_engine = ask

    def enter_body(self) -> None:
        """The arguments have been drawn, from all that was sent for them."""
        if self.index < self._told:
            raise _other_strategies(f"{self._told - self.index} of its choices are left over")
        self._in_body = True

    def spans_since(self) -> tuple[int | bool, ...]:
        """What of the structure of draws has not been told yet."""
        told, self._spans = tuple(self._spans), []
        return told

    def start_span(self, label: int) -> None:
        if self._in_body:
            self._spans.append(label)
        super().start_span(label)

    def stop_span(self, *, discard: bool = False) -> None:
        if self._in_body and not self.frozen:
            self._spans.append(bool(discard))
        super().stop_span(discard=discard)

    def _draw(self, choice_type: Any, constraints: Any, *, observe: bool, forced: Any) -> Any:
        if observe and self.index >= len(self.prefix):  # type: ignore[arg-type]
            if not self._in_body:
                raise _other_strategies("it has too few choices")
            told = self.spans_since()
            try:
                given = self._ask_engine(ask_bytes(choice_type, constraints, forced, told))
            except RanksDrewDifferently:
                self._spans[:0] = told  # the engine has not heard of them: it was not asked
                raise
            self.prefix.append(given)  # type: ignore[union-attr, unused-ignore]
        value = super()._draw(choice_type, constraints, observe=observe, forced=forced)
        if self.misaligned_at is not None:
            raise _other_strategies(f"choice {self.index} is not of what it draws there")
        return value


def _other_strategies(why: str) -> HypothesisException:
    return RanksHaveOtherStrategies(
        f"this rank cannot draw the example that the pytest process has drawn: {why}. Strategies must be the same in "
        "all processes: let them depend on nothing that differs between these, such as RANK or an unordered set."
    )


class RanksHaveOtherStrategies(HypothesisException):
    """A rank draws other things from an example's choices than the engine has."""


RanksHaveOtherStrategies.__module__ = "ddpcheck"


class Follower:
    """The pytest plugin that runs a property's body for one example after the other."""

    def __init__(self, item: Any, channel: Channel) -> None:
        self.item, self.channel = item, channel
        self.pid = os.getpid()
        self.function: Any = getattr(item.obj, "__func__", item.obj)
        own = self.function._hypothesis_internal_use_settings
        self.settings = settings(
            parent=own,
            database=None,
            deadline=None,
            verbosity=Verbosity.normal,
            suppress_health_check=list(HealthCheck),  # the engine has looked at what concerns the test
        )
        self.function._hypothesis_internal_use_settings = self.settings
        if getattr(core, "_hypothesis_global_random", 0) is None:  # older hypothesis warns where no engine has made it
            core._hypothesis_global_random = random.Random(0)  # type: ignore[attr-defined]
        self._begin_with: Callable[[], None] = lambda: None
        self._diverged: RanksDrewDifferently | None = None
        """What a draw of this example has raised: it counts also where the body has caught it."""

    @pytest.hookimpl(tryfirst=True)
    def pytest_pyfunc_call(self, pyfuncitem: pytest.Function) -> bool | None:
        __tracebackhide__ = True
        if pyfuncitem is not self.item:
            return None
        state = self._state()
        self._begin_with = _random_state()
        self.channel.send(messages.Following())
        with put_back_once():
            while True:
                match self.channel.receive():
                    case messages.Example() as example:
                        self._run(state, example)
                    case messages.Finish():
                        return True
                    case message:
                        raise AssertionError(f"a rank was sent {message!r} between two examples")

    def _state(self) -> Any:
        """hypothesis' own way of running a body once, with the fixtures of this rank."""
        item, function = self.item, self.function
        fixtures = {name: item.funcargs[name] for name in item._fixtureinfo.argnames}
        bound = getattr(item.obj, "__self__", None)
        *_, stuff = core.process_arguments_to_given(
            function,
            (bound,) if bound is not None else (),
            fixtures,
            function.hypothesis._given_kwargs,
            dict(inspect.signature(function).parameters),
        )
        return core.StateForActualGivenExecution(
            stuff, self._body(function.hypothesis.inner_test), self.settings, random.Random(0), function
        )

    def _body(self, inner: Any) -> Any:
        @functools.wraps(inner)
        def body_of_a_property(*args: Any, **kwargs: Any) -> Any:
            __tracebackhide__ = True
            if self.data is not None:
                self.data.enter_body()
            return inner(*args, **kwargs)

        return body_of_a_property

    # --- one example

    data: FollowingData | None = None

    def _run(self, state: Any, example: messages.Example) -> None:
        __tracebackhide__ = True
        explicit = None
        if example.explicit is not None:
            explicit = explicit_examples(self.function)[example.explicit]
        data = FollowingData(unpack(example.choices), self._ask)
        self.data = None if explicit is not None else data
        global _telling
        _telling = self.tell if example.final or example.verbose else None
        self._begin_with()
        if example.final:
            _forget_output(self.item.config)
        error: BaseException | None = None
        returned = self._diverged = None
        try:
            with with_reporter(self._note):
                returned = state.execute_once(data, is_final=example.final or example.verbose, example_kwargs=explicit)
        except (Closed, pytest.exit.Exception):
            raise
        except BaseException as raised:
            error = raised
        if os.getpid() != self.pid:
            os._exit(70)  # a process that the body forked, and that came back out of it: it is no rank
        if data.frozen and data.status in (Status.INVALID, Status.OVERRUN):
            error = StopTest(0)  # a draw has rejected the example, and whatever the body made of that is void
        error = self._diverged or error
        end = _end(data, error, returned, self.function)
        self.channel.send(messages.ExampleEnded(end=end))
        if example.final and end.status == "failed":
            assert error is not None
            if isinstance(error, RanksHaveOtherStrategies):  # no line of the test has been run
                raise pytest.fail.Exception(str(error), pytrace=False) from None
            raise error.with_traceback(_from_the_body(error, self.function))

    def _note(self, text: object) -> None:
        self.channel.send(messages.Noted(text=str(text)))

    def tell(self, text: str) -> None:
        """Note what is about to happen."""
        self.channel.send(messages.Noted(text=text, begun=True))

    def _ask(self, ask: bytes) -> Any:
        """Ask for a choice, as all ranks do at this point."""
        self.channel.send(messages.Asked(ask=ask, where=_line_that_draws()))
        match self.channel.receive():
            case messages.Given(stop=True):
                assert self.data is not None
                return self.data.conclude_test(Status.OVERRUN)  # which raises
            case messages.Given(choice=choice):
                return plain(choice)
            case messages.Diverged(asked=asked):
                self._diverged = RanksDrewDifferently(_divergence(asked, current("a draw").world_size))
                raise self._diverged
            case message:
                raise AssertionError(f"a rank was sent {message!r} in a draw")


_telling: Callable[[str], None] | None = None


def telling() -> Callable[[str], None] | None:
    """What notes a step before it is taken, where a reader may need it."""
    return _telling


def _line_that_draws() -> CallSite:
    """The user's line: not one of hypothesis, which is between it and us."""
    frame = sys._getframe(1)
    while frame.f_back is not None and (is_ours(frame.f_code.co_filename) or is_engine(frame.f_code.co_filename)):
        frame = frame.f_back
    return CallSite(file=frame.f_code.co_filename, line=line_of(frame), function=frame.f_code.co_name)


def _divergence(asked: dict[int, messages.Asked], world_size: int) -> str:
    choices = by_key((f"drew {ask_of(one.ask).text} ({one.where})", rank) for rank, one in sorted(asked.items()))
    ended = [rank for rank in range(world_size) if rank not in asked]
    found = [f"{ranks_text(ranks)} {what}" for what, ranks in choices.items()]
    if len(choices) == 1 and not ended:
        found = ["the same choice, for different parts of their values"]
    if ended:
        found.append(f"{ranks_text(ended)} had ended the body")
    return (
        f"the ranks drew differently: {'; '.join(found)}. All ranks draw the same values in the same order: let no "
        "draw depend on the rank, or on what only one rank has."
    )


def _end(data: FollowingData, error: BaseException | None, returned: Any, function: Any) -> ExampleEnd:
    facts: dict[str, Any] = {"at": clock.now(), "spans": data.spans_since()}
    facts["events"] = tuple((str(k), v) for k, v in data.events.items() if k != "gave up because")
    facts["targets"] = tuple(data.target_observations.items())
    if error is None:
        return ExampleEnd(status="passed", returned="" if returned is None else repr(returned), **facts)
    if isinstance(error, UnsatisfiedAssumption):
        return ExampleEnd(status="invalid", text=str(getattr(error, "reason", "") or ""), where=_place(error), **facts)
    if isinstance(error, StopTest):
        rejected = data.status is Status.INVALID  # by a filter
        return ExampleEnd(
            status="invalid" if rejected else "stopped", text=str(data.events.get("gave up because", "")), **facts
        )
    if isinstance(error, _SKIPS):
        return ExampleEnd(status="skipped", text=str(error), where=_place(error), **facts)
    found = traceback.format_exception(type(error), error, _from_the_body(error, function))
    return ExampleEnd(
        status="failed",
        text="".join(traceback.format_exception_only(type(error), error)).strip(),
        where=_place(error),
        origin=origin_of(error),
        reaction=is_reaction(error),
        traceback="".join(found)[-_MOST_TRACEBACK:],
        **facts,
    )


def _place(error: BaseException) -> CallSite | None:
    """The user's line that has raised."""
    place = None
    for frame, line in traceback.walk_tb(error.__traceback__):
        name = frame.f_code.co_filename
        if not is_ours(name) and not is_engine(name):
            place = CallSite(file=name, line=line, function=frame.f_code.co_name)
    return place


def _from_the_body(error: BaseException, function: Any) -> Any:
    """The traceback from the body's own frame on; what is around it is hypothesis' and ours."""
    code = function.hypothesis.inner_test.__code__
    tb = error.__traceback__
    while tb is not None and tb.tb_frame.f_code is not code:
        tb = tb.tb_next
    if isinstance(error, (RanksDrewDifferently, RanksHaveOtherStrategies)) and tb is not None:
        return _own_lines(tb)
    return tb or get_trimmed_traceback(error)


def _own_lines(tb: types.TracebackType) -> types.TracebackType:
    """The same, less hypothesis' lines at its end: the user's draw is what was wrong."""
    frames = []
    step: types.TracebackType | None = tb
    while step is not None:
        frames.append(step)
        step = step.tb_next
    while len(frames) > 1 and (is_ours(name := frames[-1].tb_frame.f_code.co_filename) or is_engine(name)):
        frames.pop()
    shown: types.TracebackType | None = None
    for frame in reversed(frames):
        shown = types.TracebackType(shown, frame.tb_frame, frame.tb_lasti, frame.tb_lineno)
    assert shown is not None
    return shown


def _forget_output(config: pytest.Config) -> None:
    """Drop what earlier examples have printed and logged: the report is about this one."""
    capture: Any = config.pluginmanager.getplugin("capturemanager")
    if capture is not None and capture.is_globally_capturing():
        capture.read_global_capture()
    logs: Any = config.pluginmanager.getplugin("logging-plugin")
    for name in ("report_handler", "caplog_handler"):
        handler = getattr(logs, name, None)
        if handler is not None:
            handler.reset()


def _random_state() -> Callable[[], None]:
    """What sets torch's random numbers back to where they are now.

    hypothesis does this for Python's and numpy's, so that an example does the
    same every time. A body that runs after hundreds of others must do what it
    does in ranks that have just started.
    """
    torch = sys.modules.get("torch")
    if torch is None:
        return lambda: None
    state = torch.random.get_rng_state()
    on_gpu = torch.cuda.get_rng_state() if torch.cuda.is_initialized() else None

    def restore() -> None:
        torch.random.set_rng_state(state)
        if on_gpu is not None:
            torch.cuda.set_rng_state(on_gpu)

    return restore
