"""The inner test file whose tests end in every way that a test in ranks can end."""

ENDINGS = """
import ctypes, os, signal, sys, threading, time, subprocess, unittest
import pytest, torch
import torch.distributed as dist
import ddpcheck

def log(name, text):
    with open(os.path.join(os.environ["TMPDIR"], name), "a") as file:
        file.write(text + "\\n")

@pytest.mark.ddp(world_size=[1, 2, 4])
def test_pass(ddp):
    total = torch.tensor([ddp.rank])
    dist.all_reduce(total)
    assert total.item() == sum(range(ddp.world_size))
    print("said by", ddp.rank)

@pytest.mark.ddp
def test_raise_on_one(ddp):
    found = {"loss": ddp.rank}
    if ddp.rank == 1:
        assert found == {"loss": 7}
    dist.barrier()

@pytest.mark.ddp
def test_second_raises_later(ddp):
    dist.barrier()
    if ddp.rank == 0:
        time.sleep(0.1)
        raise ValueError("the later one")
    raise KeyError("the earlier one")

@pytest.mark.ddp(world_size=3)
@pytest.mark.parametrize("name", ["SIGSEGV", "SIGKILL", "SIGABRT", "SIGTERM"])
def test_signal(ddp, name):
    os.write(2, b"last words of " + str(ddp.rank).encode())
    if ddp.rank == 2:
        os.kill(os.getpid(), getattr(signal, name))
    dist.barrier()

@pytest.mark.ddp
@pytest.mark.parametrize("code", [0, 3])
def test_leave(ddp, code):
    if ddp.rank == 1:
        os._exit(code)
    dist.barrier()

@pytest.mark.ddp
def test_leave_after_a_lone_pass(ddp):
    if ddp.rank == 0:
        os._exit(0)

@pytest.mark.ddp
def test_sys_exit(ddp):
    if ddp.rank == 1:
        sys.exit(0)
    dist.barrier()

@pytest.mark.ddp(timeout=1.5)
def test_timeout(ddp):
    if ddp.rank == 0:
        time.sleep(1000)
    dist.barrier()

def hold_the_gil():
    ctypes.PyDLL(None).sleep(1000)

@pytest.mark.ddp(timeout=1.5)
def test_timeout_holding_the_gil(ddp):
    hold_the_gil()

@pytest.mark.ddp(timeout=1.5)
def test_timeout_of_one_while_the_other_has_ended(ddp):
    if ddp.rank == 1:
        time.sleep(1000)

@pytest.mark.ddp
@pytest.mark.skip(reason="not today")
def test_skip_mark(ddp):
    raise AssertionError

@pytest.mark.ddp
def test_skip_in_body(ddp):
    pytest.skip("not here")

@pytest.mark.ddp
def test_skip_on_one(ddp):
    if ddp.rank == 1:
        pytest.skip("rank one will not")

@pytest.mark.ddp
def test_skip_on_one_while_the_other_waits(ddp):
    if ddp.rank == 1:
        pytest.skip("rank one will not")
    dist.barrier()

@pytest.fixture
def works_on_zero():
    if dist.get_rank() == 1:
        raise LookupError("no such dataset")
    yield 3

@pytest.mark.ddp
def test_fixture_fails_on_one(ddp, works_on_zero):
    dist.barrier()

@pytest.fixture
def fails_in_teardown():
    yield
    if dist.get_rank() == 1:
        raise OSError("cannot clean up")

@pytest.mark.ddp
def test_teardown_fails_on_one(ddp, fails_in_teardown):
    pass

@pytest.fixture
def logs_its_process():
    log("fixture.log", str(os.getpid()))
    yield os.getpid()
    log("fixture.log", "down")

@pytest.mark.ddp
def test_function_fixture(ddp, logs_its_process):
    log("ranks.log", str(os.getpid()))
    assert logs_its_process == os.getpid()

@pytest.mark.ddp
def test_keyboard_interrupt(ddp):
    if ddp.rank == 1:
        raise KeyboardInterrupt
    dist.barrier()

@pytest.mark.ddp
def test_leaves_a_thread(ddp):
    if ddp.rank == 1:
        threading.Thread(target=time.sleep, args=(1000,), name="straggler").start()

@pytest.mark.ddp
def test_leaves_a_process(ddp):
    if ddp.rank == 0:
        subprocess.Popen(["sleep", "1001"])

@pytest.mark.ddp
def test_leaves_a_daemon(ddp):
    reading, writing = os.pipe()  # its end is read when both have gone, or have become another program
    if ddp.rank == 0 and os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            os.execvp("sleep", ["sleep", "1002"])
        os._exit(0)
    os.close(writing)
    os.read(reading, 1)

@pytest.mark.ddp
def test_a_forked_child_comes_back_out_of_the_test(ddp):
    pid = os.fork()
    if pid:
        os.waitpid(pid, 0)

@pytest.mark.ddp
def test_destroys_the_group(ddp):
    dist.destroy_process_group()

@pytest.mark.ddp
def test_makes_groups_and_leaves_them(ddp):
    dist.new_group([0, 1])

@pytest.mark.ddp
@pytest.mark.xfail(raises=ValueError, strict=True)
def test_xfail_raises(ddp):
    if ddp.rank == 1:
        raise ValueError("as expected")
    dist.barrier()

@pytest.mark.ddp
@pytest.mark.xfail(raises=ValueError, strict=True)
def test_xfail_raises_another(ddp):
    if ddp.rank == 1:
        raise KeyError("not as expected")
    dist.barrier()

@pytest.mark.ddp
@pytest.mark.xfail(strict=True)
def test_xfail_strict_passes(ddp):
    pass

@pytest.mark.ddp
@pytest.mark.xfail(strict=False)
def test_xfail_passes(ddp):
    pass

@pytest.mark.ddp
@pytest.mark.xfail(strict=True)
def test_xfail_dies(ddp):
    os.kill(os.getpid(), signal.SIGKILL)

@pytest.mark.ddp
@pytest.mark.xfail(raises=ValueError, strict=True)
def test_xfail_raises_dies(ddp):
    os.kill(os.getpid(), signal.SIGKILL)

@pytest.mark.ddp
@pytest.mark.xfail(strict=True)
def test_xfail_on_one_rank_without_a_collective(ddp):
    if ddp.rank == 1:
        raise ValueError

@pytest.mark.ddp
def test_asymmetric_assertion(ddp):
    if ddp.rank == 0:
        ddpcheck.assert_replicas_identical(torch.nn.Linear(2, 2))

@pytest.mark.ddp(timeout=3)
def test_asymmetric_assertion_before_a_collective(ddp):
    if ddp.rank == 0:
        ddpcheck.assert_replicas_identical(torch.nn.Linear(2, 2))
    dist.barrier()

@pytest.mark.ddp
def test_violation(ddp):
    torch.manual_seed(ddp.rank)
    ddpcheck.assert_replicas_identical(torch.nn.Linear(2, 2))

@pytest.mark.ddp
def test_closes_its_standard_descriptors(ddp):
    os.close(0); os.close(1); os.close(2)

@pytest.mark.ddp
def test_odd_output(ddp, record_property):
    os.write(1, bytes(range(256)))
    print("\\udc80 lone surrogate")
    record_property("object", object)
    record_property("number", 3)
    assert ddp.rank == 5, "\\udcff"

@pytest.mark.ddp
def test_raises_while_the_other_still_works(ddp):
    if ddp.rank == 1:
        raise ValueError("at once")
    time.sleep(0.1)

class TestInAClass:
    @pytest.mark.ddp
    def test_method(self, ddp):
        dist.barrier()

class TestUnittest(unittest.TestCase):
    def setUp(self):
        self.value = dist.get_rank()

    @pytest.mark.ddp
    def test_method(self):
        assert self.value in (0, 1)

    @pytest.mark.ddp
    def test_skipping_method(self):
        self.skipTest("not this one")

    @pytest.mark.ddp
    def test_failing_method(self):
        self.assertEqual(self.value, 0)

def test_plain_in_between():
    assert not dist.is_initialized()
"""
