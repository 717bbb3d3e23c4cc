"""What a zygote imports before it forks, and the state that it must not have by then."""

from __future__ import annotations

import contextlib
import gc
import importlib
import linecache
import logging
import os
import pkgutil
import sys
import threading
from collections.abc import Callable, Iterator

from ddpcheck.gpus.gpu_inventory import children_lack_cuda
from ddpcheck.ranks.process_ties import native_threads
from ddpcheck.vocabulary.wording import signal_name

THREAD_SETTINGS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
_KEPT = "DDPCHECK_KEPT_"

_LAZY = (
    "torch.distributed",
    "torch.nn.parallel",
    "torch.utils.data",
    "torch.utils.data.distributed",
    "torch.optim",
    # The first DistributedDataParallel imports these: half of a short test's time.
    "torch._dynamo.utils",
    "torch.profiler._cupti_monitor",
)

_FOLDERS = ("probes", "assertions", "checkpoint_trials")
"""Our own that ranks import, all of it: in a rank pytest would have to parse each file, in vain, for assertions."""

# Those whose lines stand in the stack of a test's body.
_IN_STACKS = (
    "_pytest.config",
    "_pytest.main",
    "_pytest.python",
    "_pytest.runner",
    "ddpcheck.ranks.pytest_host",
    "ddpcheck.zygote.rank_life",
    "ddpcheck.ranks.rank_starting",
    "ddpcheck.zygote.zygote",
    "pluggy._caller",
    "pluggy._callers",
    "pluggy._execution",
    "pluggy._hooks",
    "pluggy._manager",
    "torch._compile",
    "torch._dynamo.eval_frame",
    "torch.cuda",
    "torch.cuda.random",
    "torch.mtia",
    "torch.random",
    "torch.xpu",
    "torch.xpu.random",
)


def single_threaded(environment: dict[str, str]) -> dict[str, str]:
    """The environment of a zygote: numeric libraries start no thread pool that a fork would lose.

    What the user had set is kept aside and comes back in every rank.
    """
    kept = {_KEPT + name: environment[name] for name in THREAD_SETTINGS if name in environment}
    return environment | kept | dict.fromkeys(THREAD_SETTINGS, "1")


def restore_thread_settings() -> None:
    """Give a rank the user's settings; one OpenMP thread where there are none, as torchrun does."""
    import torch

    for name in THREAD_SETTINGS:
        value = os.environ.pop(_KEPT + name, None)
        if value is not None:
            os.environ[name] = value
        elif name != "OMP_NUM_THREADS":
            os.environ.pop(name, None)
    with contextlib.suppress(ValueError):
        torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))


_NVML_CHECK = "PYTORCH_NVML_BASED_CUDA_CHECK"


def without_cuda(environment: dict[str, str]) -> dict[str, str]:
    """The environment of a zygote: a module that asks for GPUs when it is imported gets its answer without CUDA.

    The other way to answer initialises the driver, and then nothing can be forked that is to use it.
    """
    if _NVML_CHECK in environment:
        return environment
    return environment | {_NVML_CHECK: "1", _KEPT + _NVML_CHECK: ""}


def restore_cuda_check() -> None:
    """Let a rank ask for GPUs as the user's processes do."""
    if os.environ.pop(_KEPT + _NVML_CHECK, None) is not None:
        os.environ.pop(_NVML_CHECK, None)


def _ours() -> Iterator[str]:
    for folder in _FOLDERS:
        package = importlib.import_module(f"ddpcheck.{folder}")
        for found in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            if not found.name.startswith("ddpcheck.probes.startup"):  # which is at work as soon as it is imported
                yield found.name


def import_torch() -> None:
    """Import torch and what DistributedDataParallel would import later, without running any of it."""
    importlib.import_module("torch")
    for name in (*_LAZY, "ddpcheck.ranks.rendezvous", *_ours()):
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    in_ddp_tests = importlib.import_module("ddpcheck.probes.in_ddp_tests")
    in_ddp_tests.patch()  # here, once, and not in every rank
    _anticipate()
    gc.freeze()  # before the first collection, which would look at a million objects to find that they stay
    gc.enable()
    for name in list(logging.root.manager.loggerDict):
        if name.startswith("c10d-"):
            # torch's record of every failed call, meant for a handler that drops it; pytest's would show it.
            logging.getLogger(name).disabled = True


def _anticipate() -> None:
    """Do once what every rank would do again, where it changes nothing but the time it takes."""
    with contextlib.suppress(ImportError, AttributeError):
        from torch._dynamo import trace_rules

        trace_rules.clear_lru_cache()  # type: ignore[no-untyped-call,unused-ignore]  # init_process_group does
    # torch.manual_seed writes down its caller's stack for each kind of device that is not in use.
    for name in _IN_STACKS:
        file = getattr(sys.modules.get(name), "__file__", None)
        if file is not None:
            linecache.getlines(file)


class ForkSafety:
    """Tells whether this process may still be forked from, and if not, why."""

    def __init__(self) -> None:
        self._baseline = native_threads()
        self._python = {thread.ident for thread in threading.enumerate()}
        self.has_gpus = False
        """Whether a rank could use CUDA at all; if not, it is no matter what this process has done to it."""

    def lost(self) -> str:
        """Return what makes forking unsafe, as the end of a sentence; empty if nothing does."""
        if not hasattr(os, "fork") or sys.platform != "linux":
            return f"{sys.platform} has no safe fork"
        started = native_threads() - self._baseline
        if started > 0:
            names = [t.name for t in threading.enumerate() if t.ident not in self._python]
            named = f" ({', '.join(names)})" if names else " (native)"
            return f"it started {started} thread{'s' if started > 1 else ''}{named}"
        import torch

        if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
            return "it initialised CUDA"
        counted = "it had CUDA count the devices, as torch.cuda.is_available() does"
        if self.has_gpus and (reason := _said_by_child(children_lack_cuda, counted)):
            return reason
        if torch.distributed.is_initialized():
            return "it made a process group"
        return _said_by_child(_backward_forbidden, "it ran autograd (a backward pass)")

    def settle(self) -> None:
        """Make what is here now cheap to share: no collection of a rank will touch it."""
        gc.collect()
        gc.freeze()


def _backward_forbidden() -> bool:
    """Asked in a fork: whether it cannot use autograd, because its parent has.

    torch forbids backward in the child of a process whose autograd started
    threads; that is only seen by trying.
    """
    import torch

    try:
        torch.ones(1, requires_grad=True).sum().backward()  # type: ignore[no-untyped-call]
    except RuntimeError as error:
        if "autograd" in str(error):
            return True
        raise
    return False


_NO, _YES, _RAISED = 200, 201, 202
"""How a fork that was asked something ends; any other end is none of its own."""


def _said_by_child(question: Callable[[], bool], reason: str) -> str:
    """``reason`` where a fork of this process says yes, nothing where it says no; else what became of that fork."""
    try:
        pid = os.fork()
    except OSError as error:
        return f"no child could be forked to try it ({error})"
    if pid == 0:
        code = _RAISED
        try:
            code = _YES if question() else _NO
        finally:
            os._exit(code)
    _, status = os.waitpid(pid, 0)
    code = os.waitstatus_to_exitcode(status)
    if code in (_YES, _NO):
        return reason if code == _YES else ""
    if code == _RAISED:
        return "a child that was forked to try it could not use torch"
    how = f"was killed by {signal_name(-code)}" if code < 0 else f"left with exit code {code}"
    return f"a child that was forked to try it {how}"
