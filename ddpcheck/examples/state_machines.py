"""State machines whose rules run in all ranks: a property, whose draws are the machine's steps.

PYTEST_DONT_REWRITE (its own assertions are for its authors)
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import sys
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hypothesis.stateful import RuleBasedStateMachine

_STATEFUL = "hypothesis.stateful"
_MAKES_TESTS = "get_state_machine_test"


def run_state_machine(machine: Callable[[], RuleBasedStateMachine], data: Any) -> None:
    """Run a state machine in all ranks, with the same steps in each.

    ``machine`` is its class, or a function that makes one; ``data`` is what
    ``st.data()`` draws::

        @pytest.mark.ddp(world_size=2)
        @given(data=st.data())
        def test_loader(ddp, data):
            ddpcheck.run_state_machine(lambda: Loader(ddp), data)
    """
    __tracebackhide__ = True
    from hypothesis import settings, stateful
    from hypothesis.strategies import DataObject

    if not isinstance(data, DataObject):
        raise TypeError(
            f"run_state_machine(machine, data) needs what st.data() draws, as in @given(data=st.data()), and was given "
            f"{data!r}"
        )
    make = getattr(stateful, _MAKES_TESTS)
    make = getattr(make, "ddpcheck_stands_for", make)
    with contextlib.ExitStack() as stack:

        def begun() -> RuleBasedStateMachine:
            built = machine()
            stack.enter_context(_telling(built))
            return built

        test = make(begun, settings=settings.default).hypothesis.inner_test
        if len(inspect.signature(test).parameters) == 1:
            test(data)
        else:  # hypothesis before 6.140
            test(begun, data)


@contextlib.contextmanager
def _telling(machine: Any) -> Iterator[None]:
    """Have each step told before it is run, where its reader may need it: hypothesis tells steps that have returned."""
    from ddpcheck.examples.rank_side import telling

    tell = telling()
    strategy = getattr(machine, "_rules_strategy", None)
    rules = [*getattr(strategy, "rules", ()), *getattr(machine, "_initialize_rules_to_run", ())] if tell else []
    functions = [(rule, rule.function) for rule in rules]
    for rule, function in functions:
        rule.function = _told(function, tell)
    try:
        yield
    finally:
        for rule, function in functions:
            rule.function = function


def _told(function: Any, tell: Any) -> Any:
    @functools.wraps(function)
    def step(machine: Any, **values: Any) -> Any:
        __tracebackhide__ = True
        given = ", ".join(f"{name}={value!r}" for name, value in values.items())
        tell(f"state.{function.__name__}({given})  # has not returned")
        return function(machine, **values)

    return step


def refuse_other_ways() -> None:
    """Have hypothesis' own ways to run a machine say that each rank would take steps of its own."""
    stateful = sys.modules.get(_STATEFUL)
    original = getattr(stateful, _MAKES_TESTS, None)
    if original is None:
        return

    def refuse(machine: Any, **_: Any) -> None:
        __tracebackhide__ = True
        name = machine.__name__ if isinstance(machine, type) else "Machine"
        raise RuntimeError(
            f"run_state_machine_as_test and {name}.TestCase take steps of their own in every rank of a ddp test. Run "
            "the machine as a property: @given(data=st.data()) def test(ddp, data): "
            f"ddpcheck.run_state_machine({name}, data)"
        )

    refuse.ddpcheck_stands_for = original  # type: ignore[attr-defined]
    setattr(stateful, _MAKES_TESTS, refuse)
