"""Tests with the mark ``gpu`` and without ranks: they run in the pytest process, and lease GPUs as ranks do.

CUDA reads CUDA_VISIBLE_DEVICES once in a process. So this process takes as many
GPUs as the most demanding of its tests wants, and keeps to them; it holds their
lease while such a test runs, and not in between: its other tests, in ranks,
may need them. What stays on the GPU in between is the context of a process
that does nothing.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Generator, Iterable, Iterator
from typing import TYPE_CHECKING

import pytest

from ddpcheck.gpus import visible_devices
from ddpcheck.gpus.allotment import Refusal, allot, nobody_to_ask, only_real
from ddpcheck.gpus.gpu_inventory import NobodyToAsk
from ddpcheck.gpus.leases import FOLDER_VARIABLE, PATIENCE, PAUSE, Lease, folder
from ddpcheck.marks.gpu_mark import GpuMark, gpu_mark_of, has_ranks
from ddpcheck.vocabulary.clock import clock
from ddpcheck.vocabulary.model import Gpu

if TYPE_CHECKING:
    from ddpcheck.plugin.ddp_item_run import Session


class GpusOfThisProcess:
    """The pytest plugin that gives GPUs to the tests of the pytest process itself, one test at a time."""

    def __init__(self, session: Session, wanted: Iterable[int]) -> None:
        self._session, self._wanted = session, tuple(wanted)
        self._own: tuple[Gpu, ...] = ()
        self._refused: Refusal | None = None

    # --- hooks

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        mark = gpu_mark_of(item)
        if mark is None or has_ranks(item):
            return (yield)
        with contextlib.ExitStack() as held:
            try:
                self._refused = self._refusal(mark)
                if self._refused is None:
                    held.enter_context(self._devices(mark, item.nodeid))
            except NobodyToAsk as error:
                self._refused = nobody_to_ask(error)
            except OSError as error:
                self._refused = Refusal(f"its GPUs could not be leased: {error}", fails=True)
            return (yield)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        refused, self._refused = self._refused, None
        if refused is not None and refused.fails:
            pytest.fail(refused.reason, pytrace=False)
        if refused is not None:
            raise pytest.skip.Exception(refused.reason, _use_item_location=True)

    # --- the GPUs

    def _refusal(self, mark: GpuMark) -> Refusal | None:
        if mark.real and self._session.simulated_gpus is not None:
            return only_real(mark)
        title = "@pytest.mark.gpu" + (f"({mark.number})" if mark.number else "")
        found = allot(title, 1, "gloo", mark.number, self._session.machine(), self._session.required_gpus)
        return found if isinstance(found, Refusal) else None

    def _devices(self, mark: GpuMark, holder: str) -> contextlib.AbstractContextManager[object]:
        if self._session.simulated_gpus is None:
            return self.leased(holder)
        import ddpcheck

        devices: contextlib.AbstractContextManager[object] = ddpcheck.simulated_devices(mark.number or 1)
        return devices

    @contextlib.contextmanager
    def leased(self, holder: str) -> Iterator[tuple[Gpu, ...]]:
        """Hold this process's GPUs while a test runs, and let CUDA see them alone where it has not begun yet."""
        there = self._session.machine().gpus
        most = max((number for number in self._wanted if number <= len(there)), default=1)
        lease = self._wait(self._own or there, len(self._own) or most, holder)
        try:
            if not self._own and not _bound(lease.gpus):
                # A module has had CUDA count the devices when it was imported: CUDA sees all of
                # them, and begins with the first.
                first = there[: len(lease.gpus)]
                lease.release()
                lease = self._wait(first, len(first), holder)
            self._own = lease.gpus
            with _leases_of_its_own():
                yield lease.gpus
        finally:
            lease.release()

    def _wait(self, candidates: tuple[Gpu, ...], wanted: int, holder: str) -> Lease:
        lease = Lease(candidates, wanted, folder(), holder)
        begun, told = clock.now(), False
        try:
            while not lease.take():
                if not told and clock.now() > begun + PATIENCE:
                    told = True
                    self._session.say(lease.told())
                time.sleep(PAUSE)
        except BaseException:
            lease.release()
            raise
        return lease


def _bound(gpus: tuple[Gpu, ...]) -> bool:
    """Let CUDA see these GPUs alone in this process; false where it has begun, and sees others."""
    visible_devices.narrow(tuple(gpu.token for gpu in gpus))
    torch = sys.modules.get("torch")
    count = getattr(getattr(torch, "_C", None), "_cuda_getDeviceCount", None)
    if count is None or count() == len(gpus):
        return True
    visible_devices.widen()
    return False


@contextlib.contextmanager
def _leases_of_its_own() -> Iterator[None]:
    """Let sessions that the test starts share its GPUs among themselves, instead of waiting for it."""
    before = os.environ.get(FOLDER_VARIABLE)
    inner = tempfile.mkdtemp(prefix="ddpcheck.within.")
    os.environ[FOLDER_VARIABLE] = inner
    try:
        yield
    finally:
        os.environ.pop(FOLDER_VARIABLE, None)
        if before is not None:
            os.environ[FOLDER_VARIABLE] = before
        shutil.rmtree(inner, ignore_errors=True)
