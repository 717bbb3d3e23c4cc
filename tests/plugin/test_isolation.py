"""No test sees what another left behind, and everything of pytest that a test may use works in ranks."""

from __future__ import annotations

import pytest

from tests.inner import InnerProject, Ran

CONFTEST = """
import os, pytest

def log(text):
    with open(os.path.join(os.environ["TMPDIR"], "scopes.log"), "a") as file:
        file.write(text + "\\n")

def pytest_addoption(parser):
    parser.addoption("--flavour", default="plain")

def pytest_collection_modifyitems(items):
    for item in items:
        if "marked_by_conftest" in item.name:
            item.add_marker(pytest.mark.skip(reason="by the conftest"))

@pytest.fixture(scope="session")
def session_value():
    log(f"session {os.getpid()}")
    yield "session"

@pytest.fixture(scope="module")
def module_value(session_value):
    yield session_value + " module"

@pytest.fixture(scope="class")
def class_value(module_value):
    yield module_value + " class"

@pytest.fixture
def value(class_value):
    yield class_value + " function"

@pytest.fixture(autouse=True)
def always(request):
    request.node.always = True
"""

TESTS = """
import logging, os, random, sys, threading, time, warnings
import pytest, torch
import torch.distributed as dist

state = {"changed": 0}

def disturb():
    os.environ["DDP_TEST_DISTURBED"] = "1"
    os.environ["RANK"] = "77"
    torch.set_default_dtype(torch.float64)
    torch.manual_seed(1234)
    torch.set_num_threads(7)
    torch.use_deterministic_algorithms(True)
    state["changed"] += 1
    sys.path.append("/nowhere")
    random.seed(5)
    os.chdir("/")
    logging.getLogger().setLevel(logging.CRITICAL)
    warnings.simplefilter("ignore")
    dist.new_group()

def see():
    return [os.environ.get("DDP_TEST_DISTURBED"), os.environ["RANK"] == str(dist.get_rank()),
            torch.get_default_dtype(), torch.initial_seed(), torch.get_num_threads(),
            torch.are_deterministic_algorithms_enabled(), dict(state), sys.path[-1], os.getcwd(),
            logging.getLogger().level, len(warnings.filters), len(dist.distributed_c10d._world.pg_map),
            threading.active_count()]

@pytest.mark.ddp
@pytest.mark.parametrize("turn", range(4))
def test_each_sees_the_same(ddp, turn):
    file = os.path.join(os.environ["TMPDIR"], f"seen{ddp.rank}")
    now = repr(see())
    if os.path.exists(file):
        assert open(file).read() == now
    open(file, "w").write(now)
    disturb()
    if turn == 1:
        raise RuntimeError("also after a failure")

def test_the_session_itself_is_undisturbed():
    assert "DDP_TEST_DISTURBED" not in os.environ
    assert "RANK" not in os.environ
    assert torch.get_default_dtype() is torch.float32
    assert state == {"changed": 0}
    assert not dist.is_initialized()

@pytest.mark.ddp
def test_interruptible(ddp):
    import signal
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler

@pytest.mark.ddp
def test_environment(ddp):
    assert [os.environ[k] for k in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE")] == [
        str(ddp.rank), "2", str(ddp.rank), "2"]
    assert (ddp.rank, ddp.world_size) == (dist.get_rank(), dist.get_world_size())
    assert (ddp.local_rank, ddp.local_world_size, ddp.backend) == (ddp.rank, 2, "gloo")
    assert ddp.device == torch.device("cpu")
    assert torch.get_num_threads() == 1

@pytest.mark.ddp
def test_clock_of_its_own(ddp, monkeypatch):
    def refuse(*_):
        raise RuntimeError("this is the test's clock")
    sleep = time.sleep
    for name in ("sleep", "monotonic", "time", "perf_counter"):
        monkeypatch.setattr(time, name, refuse)
    if ddp.rank == 1:
        sleep(0.1)  # so that the other looks for its key in vain, and more than once
    group = dist.new_group([0, 1])
    seen = torch.tensor([ddp.rank])
    dist.all_reduce(seen, group=group)
    assert seen.item() == 1

@pytest.fixture
def reduces_afterwards(ddp):
    yield
    if ddp.rank == 0:
        time.sleep(0.3)  # the other is through with its teardown long before
    total = torch.tensor([1.0])
    work = dist.reduce(total, 0, async_op=True)
    if ddp.rank == 0:
        work.wait()
        assert total.item() == 2

@pytest.mark.ddp
def test_work_that_is_begun_in_a_teardown(ddp, reduces_afterwards):
    pass

@pytest.mark.ddp
def test_garbage_is_collected(ddp):
    import gc, weakref
    class Node: pass
    node = Node()
    node.itself, seen = node, weakref.ref(node)
    assert gc.isenabled() and seen() is not None
    del node
    gc.collect()
    assert seen() is None

@pytest.mark.ddp
def test_shared_folder(ddp, tmp_path):
    (ddp.tmp_path / f"from{ddp.rank}").write_text("here")
    (tmp_path / "own").write_text("mine")
    dist.barrier()
    assert sorted(p.name for p in ddp.tmp_path.iterdir()) == ["from0", "from1"]
    paths = [None, None]
    dist.all_gather_object(paths, str(tmp_path))
    assert len(set(paths)) == 2
    assert list(tmp_path.iterdir()) == [tmp_path / "own"]

@pytest.mark.ddp
def test_fixtures_of_every_scope(value, request):
    assert value == "session module class function"
    assert request.node.always

@pytest.mark.ddp
def test_capsys(ddp, capsys):
    print("to be seen", ddp.rank)
    assert capsys.readouterr().out == f"to be seen {ddp.rank}\\n"

@pytest.mark.ddp
def test_capfd(ddp, capfd):
    os.write(1, b"low")
    assert capfd.readouterr().out == "low"

@pytest.mark.ddp
def test_caplog(ddp, caplog):
    logging.getLogger("x").warning("careful %d", ddp.rank)
    assert caplog.messages == [f"careful {ddp.rank}"]

@pytest.mark.ddp
def test_monkeypatch(ddp, monkeypatch):
    monkeypatch.setenv("PATCHED", "1")
    monkeypatch.setattr(os, "getcwd", lambda: "patched")
    assert os.getcwd() == "patched"

@pytest.mark.ddp(world_size=[2, 3])
@pytest.mark.parametrize("a", [1, 2])
@pytest.mark.parametrize("b", ["x"])
def test_parametrized(ddp, a, b):
    assert (a in (1, 2)) and b == "x"

@pytest.mark.ddp
def test_option(ddp, request):
    assert request.config.getoption("--flavour") == "strong"

@pytest.mark.ddp
def test_marked_by_conftest(ddp):
    raise AssertionError

@pytest.mark.ddp
def test_warns(ddp):
    warnings.warn("a rank warns", UserWarning)

@pytest.mark.ddp
@pytest.mark.filterwarnings("error")
def test_warning_is_an_error(ddp):
    if ddp.rank == 1:
        warnings.warn("one rank warns", UserWarning)

@pytest.mark.ddp
def test_listens_on_loopback_only(ddp):
    import psutil
    listening = [c.laddr.ip for c in psutil.Process().net_connections() if c.status == psutil.CONN_LISTEN]
    assert set(listening) <= {"127.0.0.1", "::1"}, listening

@pytest.mark.ddp
def test_private_folders(ddp):
    run = os.environ["DDPCHECK_RUN"]
    assert os.stat(run).st_mode & 0o777 == 0o700
    assert os.stat(ddp.tmp_path).st_mode & 0o777 == 0o700

@pytest.mark.ddp
def test_wrap(ddp):
    model = ddp.wrap(torch.nn.Linear(2, 2), broadcast_buffers=False)
    assert isinstance(model, torch.nn.parallel.DistributedDataParallel)
    assert not model.broadcast_buffers

pytestmark = pytest.mark.ddp(timeout=33)

@pytest.mark.ddp(world_size=3)
class TestMarkOnTheClass:
    def test_method(self, ddp):
        assert ddp.world_size == 3
        assert ddp._plan.timeout == 33

    @pytest.mark.ddp(timeout=44)
    def test_closest_keyword(self, ddp):
        assert (ddp.world_size, ddp._plan.timeout) == (3, 44)
"""


FIXTURE = """
import pytest

@pytest.fixture
def {0}(): return {0!r}
"""

ASKING = """
import pytest

@pytest.mark.ddp
def test_{0}(ddp, {1}):
    assert [{1}] == {2}
"""

UNASKED = """
import os, pytest
assert "DDPCHECK_RUN" not in os.environ

@pytest.mark.ddp
def test_no(ddp): pass
"""

HOOK = """
import os, pytest
from _pytest.runner import runtestprotocol

@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item, nextitem):
    if "RANK" in os.environ:
        if "runs" in item.name:
            runtestprotocol(item, nextitem=nextitem)
        return True
"""

TAKEN = """
import pytest

@pytest.mark.ddp
@pytest.mark.parametrize("does", ["runs", "drops"])
def test_it(ddp, does): assert ddp.rank == 9
"""


@pytest.mark.parametrize("does", ["runs", "drops"])
@pytest.mark.long
def test_a_hook_that_takes_items_does_not_take_those_of_ranks(taking: Ran, does: str) -> None:
    """A conftest's own way of running a test comes after ddpcheck's, wherever it lies: no failure is lost in it."""
    assert taking[f"test_it[{does}]"].outcome == "failed"
    assert "== 9" in taking[f"test_it[{does}]"].text


@pytest.fixture(scope="module")
def taking(tmp_path_factory: pytest.TempPathFactory) -> Ran:
    """A session with a hook that takes items."""
    project = InnerProject(tmp_path_factory.mktemp("taking") / "project")
    project.write("low/conftest.py", HOOK)
    project.write("low/test_it.py", TAKEN)
    return project.run()


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Ran:
    """One inner session; its module mark makes every test but the plain ones distributed."""
    project = InnerProject(tmp_path_factory.mktemp("isolation") / "project")
    project.write("conftest.py", CONFTEST + FIXTURE.format("top"))
    plain = "def test_the_session_itself_is_undisturbed"
    head, tail = TESTS.split("pytestmark = ")
    start = head.index(plain)
    end = head.index("@pytest.mark.ddp", start)
    project.write("test_ranks.py", head[:start] + head[end:])
    project.write(
        "test_z_plain.py",
        "import os, torch\nimport torch.distributed as dist\nfrom test_ranks import state\n\n" + head[start:end],
    )
    project.write("test_marks.py", "import pytest\npytestmark = " + tail)
    project.write("a/conftest.py", FIXTURE.format("middle"))
    project.write("a/b/conftest.py", FIXTURE.format("low"))
    project.write("a/test_one.py", ASKING.format("one", "top, middle", ["top", "middle"]))
    project.write("a/test_two.py", ASKING.format("two", "top, middle", ["top", "middle"]))
    project.write("a/b/test_three.py", ASKING.format("three", "top, middle, low", ["top", "middle", "low"]))
    project.write("a/b/test_four.py", ASKING.format("four", "middle, low", ["middle", "low"]))
    project.write("a/b/test_unasked.py", UNASKED)
    asked = ["a/test_one.py", "a/b/test_three.py", "a/test_two.py", "a/b/test_four.py"]
    result = project.run(*asked, "test_ranks.py", "test_marks.py", "test_z_plain.py", "--flavour", "strong")
    assert project.leftover_processes() == []
    return result


def outcomes(ran: Ran, start: str) -> dict[str, str]:
    return {name: seen.outcome for name, seen in ran.tests.items() if name.startswith(start)}


def test_fixtures_of_conftests_in_folders(ran: Ran) -> None:
    """Every file sees the fixtures of the conftests above it; siblings that were not asked for are not read."""
    names = ["test_one", "test_two", "test_three", "test_four"]
    assert {name: ran[name].outcome for name in names} == dict.fromkeys(names, "passed"), ran.stdout
    assert "test_no" not in ran.tests


def test_no_test_sees_what_another_left_behind(ran: Ran) -> None:
    """Environment, default dtype, seeds, thread count, module globals, groups and more are as at the start."""
    assert outcomes(ran, "test_each_sees_the_same") == {
        "test_each_sees_the_same[0]": "passed",
        "test_each_sees_the_same[1]": "failed",
        "test_each_sees_the_same[2]": "passed",
        "test_each_sees_the_same[3]": "passed",
    }
    assert "also after a failure" in ran["test_each_sees_the_same[1]"].text


def test_the_session_itself_is_undisturbed(ran: Ran) -> None:
    """The pytest process has no group, no rank's environment and no changed globals."""
    assert ran["test_the_session_itself_is_undisturbed"].outcome == "passed"


@pytest.mark.parametrize(
    "name",
    [
        "test_environment",
        "test_interruptible",
        "test_clock_of_its_own",
        "test_work_that_is_begun_in_a_teardown",
        "test_garbage_is_collected",
        "test_shared_folder",
        "test_fixtures_of_every_scope",
        "test_capsys",
        "test_capfd",
        "test_caplog",
        "test_monkeypatch",
        "test_option",
        "test_listens_on_loopback_only",
        "test_private_folders",
        "test_wrap",
        "TestMarkOnTheClass::test_method",
        "TestMarkOnTheClass::test_closest_keyword",
    ],
)
@pytest.mark.few(8)
def test_works_in_ranks(ran: Ran, name: str) -> None:
    """What the inner test of this name asserts holds in every rank."""
    assert ran[name].outcome == "passed", ran[name].text


def test_parametrize_multiplies_with_world_sizes(ran: Ran) -> None:
    """There is an item for each combination of parameters and world size."""
    found = outcomes(ran, "test_parametrized")
    assert len(found) == 4
    assert set(found.values()) == {"passed"}
    assert {name.count("2ranks") + name.count("3ranks") for name in found} == {1}


def test_markers_added_by_a_conftest_count(ran: Ran) -> None:
    """pytest_collection_modifyitems acts on the items of ranks too."""
    assert ran["test_marked_by_conftest"].outcome == "skipped"


def test_warnings_of_ranks_are_recorded_once(ran: Ran) -> None:
    """A warning that all ranks give is shown once; a filter that makes an error of it acts in the rank."""
    assert ran["test_warns"].warnings == ["UserWarning: a rank warns"]
    assert ran["test_warning_is_an_error"].outcome == "failed"
    assert "rank 1 failed first" in ran["test_warning_is_an_error"].text
