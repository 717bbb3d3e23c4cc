"""The inner test file whose properties end in every way that a property in ranks can end."""

CONFTEST = """
from hypothesis import settings
settings.register_profile("inner", derandomize=True, database=None, report_multiple_bugs=False, max_examples=40)
settings.load_profile("inner")
"""

HEAD = """
import os, signal, struct, sys, threading, time
import pytest, torch
import torch.distributed as dist
import ddpcheck
from datetime import timedelta
from torch.utils.data import DataLoader, DistributedSampler
from hypothesis import (HealthCheck, Phase, assume, event, example, given, note, reproduce_failure, seed, settings,
                        target,
                        strategies as st)
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test
from ddpcheck import strategies as ds

ranks = pytest.mark.ddp(world_size=2, timeout=10.0)
unshrunk = settings(phases=[Phase.explicit, Phase.generate])
stalling = pytest.mark.ddp(world_size=2, timeout=1.0)

def log(name, text):
    with open(os.path.join(os.environ["TMPDIR"], name), "a") as file:
        file.write(f"{text}\\n")
"""

EXAMPLES = (
    HEAD
    + """
def same_on_all(mine):
    every = [None] * dist.get_world_size()
    dist.all_gather_object(every, mine)
    assert all(other == mine for other in every), every

def bits(values):
    return [struct.pack("d", value) for value in values]

# --- examples that pass

@ranks
@settings(max_examples=20)
@given(xs=st.lists(st.floats()), text=st.text("aé\\ud800😀"), raw=st.binary(), n=st.integers(), flag=st.booleans())
def test_the_same_example(ddp, xs, text, raw, n, flag):
    same_on_all((bits(xs), text, raw, n, flag))
    log("pids", os.getpid())

@ranks
@settings(max_examples=15)
@given(data=st.data())
def test_the_same_draws(ddp, data):
    drawn = [bits(data.draw(st.lists(st.floats()))), data.draw(st.text("aé\\ud800😀")),
             data.draw(st.integers()), data.draw(st.permutations(range(4))), data.draw(st.binary()),
             data.draw(st.lists(st.integers(0, 9), unique=True)), data.draw(st.sampled_from("abc"))]
    same_on_all(drawn)

@pytest.mark.ddp(world_size=[1, 2])
@pytest.mark.parametrize("limit", [20])
@unshrunk
@given(n=st.integers(0, 60))
def test_parameters(ddp, limit, n):
    assert n < limit or ddp.world_size == 1

@ranks
@settings(max_examples=15)
@seed(7)
@given(n=st.integers(1, 5000))
def test_seeded(ddp, n):
    log("seeded", n)

@ranks
@settings(max_examples=15)
@seed(7)
@given(n=st.integers(1, 5000))
def test_seeded_again(ddp, n):
    log("seeded_again", n)

@ranks
@settings(max_examples=15)
@seed(8)
@given(n=st.integers(1, 5000))
def test_seeded_otherwise(ddp, n):
    log("seeded_otherwise", n)

class TestOfAClass:
    made = 0
    def setup_example(self):
        assert dist.is_initialized()  # here, and not in the pytest process
        self.made += 1
    @ranks
    @unshrunk
    @given(st.integers(0, 60))
    def test_method(self, ddp, n):
        assert self.made and n < 50

@ranks
@given(n=st.integers(1, 60))
def test_random_numbers(ddp, n):
    drawn = torch.randn(1).item()
    assert globals().setdefault("FIRST", drawn) == drawn

@pytest.fixture(scope="module")
def slow():
    time.sleep(1.2)
    log("slow", "set up")

@stalling
@given(n=st.integers(1, 60))
def test_fixtures_have_time(slow, ddp, n):
    pass

@ranks
@settings(max_examples=10)
@given(n=st.integers(1, 5))
def test_slower_than_the_default_deadline(ddp, n):
    time.sleep(0.21)

@ranks
@settings(max_examples=5)
@given(n=st.integers(1, 60))
def test_forks(ddp, n):
    if os.fork() == 0:
        return
    os.wait()

# --- failures

@ranks
@given(n=st.integers(1, 100), flag=st.booleans())
def test_fails_on_all(ddp, n, flag):
    print("printed for", n)
    total = torch.tensor([n])
    dist.all_reduce(total)
    note(f"noted by {ddp.rank}")
    note("noted by both")
    assert total.item() < 86

@ranks
@given(n=st.integers(1, 100))
def test_fails_on_one(ddp, n):
    if ddp.rank == 1:
        assert n < 43
    dist.barrier()

@stalling
@given(n=st.integers(1, 100))
def test_hangs(ddp, n):
    if ddp.rank == 1 and n > 42:
        return
    dist.barrier()

@ranks
@given(n=st.integers(1, 100))
def test_crashes(ddp, n):
    if ddp.rank == 1 and n > 42:
        os.kill(os.getpid(), signal.SIGSEGV)
    dist.barrier()

@ranks
@unshrunk
@given(n=st.integers(1, 5000))
def test_leaves(ddp, n):
    if ddp.rank == 1 and n > 42:
        os._exit(0)

@ranks
@settings(report_multiple_bugs=True)
@given(n=st.integers(0, 7))  # so few that all of them are tried
def test_distinct(ddp, n):
    assert n not in (2, 3)
    if n in (4, 5):
        raise ValueError("of another kind")
    if n > 5:
        os.kill(os.getpid(), signal.SIGKILL)

@ranks
@unshrunk
@given(n=st.integers(1, 60))
def test_contexts(ddp, n):
    try:
        {}[n]
    except KeyError:
        if n > 10:
            raise ExceptionGroup("several", [ValueError(n)]) if sys.version_info >= (3, 11) else ValueError(n)

@ranks
@unshrunk
@given(n=st.integers(1, 60))
def test_sys_exit(ddp, n):
    if n > 10:
        sys.exit(3)

@ranks
@unshrunk
@given(n=st.integers(1, 60))
def test_keyboard_interrupt(ddp, n):
    if n > 10 and ddp.rank:
        raise KeyboardInterrupt

@ranks
@pytest.mark.xfail(raises=ValueError, strict=True)
@unshrunk
@given(n=st.integers(1, 60))
def test_xfail(ddp, n):
    if n > 10:
        raise ValueError(n)

@ranks
@pytest.mark.xfail(raises=KeyError, strict=True)
@unshrunk
@given(n=st.integers(1, 60))
def test_xfail_of_another(ddp, n):
    if n > 10:
        raise ValueError(n)

RUNS = 0

@ranks
@given(n=st.integers(1, 60))
def test_flaky(ddp, n):
    global RUNS
    RUNS += 1
    assert RUNS != 5

@ranks
@settings(deadline=timedelta(milliseconds=60), phases=[Phase.generate])
@given(n=st.integers(1, 60))
def test_own_deadline(ddp, n):
    if n > 10:
        time.sleep(0.09)

@ranks
@settings(print_blob=True, phases=[Phase.generate])
@given(n=st.integers(1, 60))
def test_blob(ddp, n):
    assert n < 10

# --- examples that are rejected, skipped or explicit

@ranks
@given(n=st.integers(1, 60))
def test_assume(ddp, n):
    assume(n % 2)
    event("odd")
    target(float(n))
    assert n % 2

@ranks
@unshrunk
@given(n=st.integers(1, 60))
def test_assume_on_one(ddp, n):
    if ddp.rank:
        assume(n < 11)

@stalling
@unshrunk
@given(n=st.integers(1, 60))
def test_assume_and_hang(ddp, n):
    if ddp.rank:
        assume(n < 7)
    dist.barrier()

@ranks
@given(n=st.integers(1, 60))
def test_never_valid(ddp, n):
    assume(n > 60)

@ranks
@given(n=st.integers(1, 60))
def test_skips(ddp, n):
    if n > 10:
        pytest.skip("too many")

def nothing_to_draw(n):
    pytest.skip("nothing to draw from")

@ranks
@given(n=st.integers(1, 60).map(nothing_to_draw))
def test_skips_in_a_strategy(ddp, n):
    pass

@ranks
@settings(phases=[])
@given(n=st.integers(1, 60))
def test_no_phase(ddp, n):
    pass

@ranks
@unshrunk
@given(n=st.integers(1, 60))
def test_skips_on_one(ddp, n):
    if n > 10 and ddp.rank:
        pytest.skip("too many")

@ranks
@settings(report_multiple_bugs=True)
@example(n=70)
@example(n=61)
@given(n=st.integers(1, 60))
def test_explicit(ddp, n):
    log(f"explicit{ddp.rank}", n)
    assert n < 61

@ranks
@example(61)
@example(n=70).xfail(raises=AssertionError)
@given(n=st.integers(1, 60))
def test_explicit_that_is_to_fail(ddp, n):
    log(f"expected{ddp.rank}", n)
    assert n < 65

# --- draws that differ

@ranks
@given(data=st.data())
def test_draws_by_rank(ddp, data):
    if data.draw(st.integers(0, 100)) > 20:
        data.draw(st.integers(0, 10 + ddp.rank))

@ranks
@unshrunk
@given(data=st.data())
def test_draws_on_one(ddp, data):
    if data.draw(st.integers(0, 100)) > 20 and ddp.rank:
        data.draw(st.integers(0, 10))

@ranks
@unshrunk
@given(data=st.data())
def test_rejections_are_caught(ddp, data):
    try:
        data.draw(st.integers(0, 9).filter(lambda n: n > 9))
    except BaseException:
        pass
    assert False

@ranks
@unshrunk
@given(data=st.data())
def test_draws_are_caught(ddp, data):
    try:
        data.draw(st.integers(0, 10 + ddp.rank))
    except BaseException:
        pass

@ranks
@unshrunk
@given(data=st.data())
def test_fails_while_the_other_draws(ddp, data):
    if data.draw(st.integers(0, 100)) > 20:
        assert ddp.rank == 0
        data.draw(st.integers(0, 10))

@ranks
@unshrunk
@given(n=st.integers(0, 5 if "RANK" in os.environ or "DDPCHECK_RUN" not in os.environ else 3))
def test_other_strategies(ddp, n):
    pass

@ranks
@unshrunk
@given(data=st.data())
def test_filters(ddp, data):
    n = data.draw(st.integers(0, 100).filter(lambda n: n % 2))
    assert n < 31

# --- bad input

@pytest.fixture
def own(ddp):
    return ddp.rank

@ranks
@given(n=st.integers(1, 60))
def test_function_scoped(own, n):
    pass

@ranks
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(n=st.integers(1, 60))
def test_function_scoped_and_suppressed(own, n):
    assert own == dist.get_rank()

@pytest.fixture(scope="module")
def broken():
    assert not dist.get_rank()

@ranks
@given(n=st.integers(1, 60))
def test_broken_fixture(broken, n):
    pass

@ranks
@given(n=st.integers(1, 60))
def test_returns(ddp, n):
    return n

@ranks
@given(n=st.integers(1, 60).map(lambda n: 1 // (n - n)))
def test_strategy_that_raises(ddp, n):
    pass

@ranks
@reproduce_failure("0.0.1", b"AEEK")
@given(n=st.integers(1, 60))
def test_blob_of_another_version(ddp, n):
    pass

# --- assertions

@ranks
@given(n=st.integers(1, 20))
def test_assertion(ddp, n):
    model = torch.nn.Linear(1, n, bias=False)
    torch.nn.init.constant_(model.weight, ddp.rank if n > 10 else 0)
    ddpcheck.assert_replicas_identical(model)

@ranks
@unshrunk
@given(n=st.integers(1, 20))
def test_assertion_on_one(ddp, n):
    if n < 10 or ddp.rank:
        ddpcheck.assert_replicas_identical(torch.nn.Linear(1, 1))
"""
)

MACHINES = (
    HEAD
    + """
class Counter(RuleBasedStateMachine):
    how, limit = "nothing", 0
    def __init__(self, ddp):
        super().__init__()
        self.ddp, self.total, self.n = ddp, 0, 0
    @initialize(n=st.integers(0, 3))
    def begin(self, n):
        self.n += n
        self.total += 2 * n
    @rule(n=st.integers(0, 100))
    def add(self, n):
        given = torch.tensor([n])
        dist.all_reduce(given)
        self.total += int(given)
        self.n += n
    @rule()
    def sync(self):
        if self.total > self.limit and self.ddp.rank == 1:
            if self.how == "raise":
                raise ValueError("too much")
            if self.how == "crash":
                os.kill(os.getpid(), signal.SIGKILL)
            if self.how == "hang":
                return
        dist.barrier()
    @invariant()
    def agrees(self):
        assert self.total == 2 * self.n

class Raise(Counter): how, limit = "raise", 150
class Crash(Counter): how = "crash"
class Hang(Counter): how = "hang"

@pytest.mark.parametrize("machine", [Counter, Raise, Crash, Hang])
@stalling
@settings(max_examples=25, stateful_step_count=10)
@given(data=st.data())
def test_machine(ddp, data, machine):
    ddpcheck.run_state_machine(lambda: machine(ddp), data)

@ranks
@unshrunk
@given(n=st.integers())
def test_machine_without_data(ddp, n):
    ddpcheck.run_state_machine(lambda: Counter(ddp), n)

@ranks
def test_as_test(ddp):
    run_state_machine_as_test(lambda: Counter(ddp))

TestCounter = pytest.mark.ddp(world_size=2)(Counter.TestCase)
"""
)
