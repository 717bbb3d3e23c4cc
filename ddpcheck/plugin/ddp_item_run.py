"""The distributed side of a pytest session: from an item and its mark to the reports of its run."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import sys
import traceback
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from ddpcheck.gpus.allotment import Allotment, Refusal, allot, nobody_to_ask, only_real, sharing_variables
from ddpcheck.gpus.gpu_inventory import NobodyToAsk
from ddpcheck.marks.ddp_mark import Mark
from ddpcheck.marks.gpu_mark import GpuMark, gpu_mark_of
from ddpcheck.outcomes.test_outcome import decide
from ddpcheck.plugin.reruns import Attempt, errors_of, run_with_reruns
from ddpcheck.ranks.session_settings import options_for_ranks, workerinput_for_ranks
from ddpcheck.report.pytest_reports import fail_for_subtests, plain_report, reports_of, subtest_reports
from ddpcheck.vocabulary.model import Gpu, Machine, Plan, RunRecord, WarningRecord
from ddpcheck.vocabulary.wording import OUR_FAULT
from ddpcheck.zygote.client import InternalError, Launcher

DEFAULT_TIMEOUT = 60.0


_NOT_MEASURED = (
    "pytest-benchmark has measured nothing here: what `benchmark` is given is called once in every rank, since each "
    "rank would choose its own number of rounds and leave the others waiting. Measure in a test without ranks."
)


class DdpcheckWarning(pytest.PytestWarning):
    """What a run in ranks has to say that is no failure."""


class Session:
    """Runs the ``ddp`` items of one pytest session."""

    def __init__(
        self, config: pytest.Config, timeout: float | None, required_gpus: int | None, simulated_gpus: int | None
    ) -> None:
        if sys.platform == "win32":
            raise pytest.UsageError("ddp tests need Linux or macOS: on Windows, run them in WSL")
        if not config.pluginmanager.hasplugin("tmpdir"):
            raise pytest.UsageError("ddp tests need pytest's own plugin tmpdir: leave out -p no:tmpdir")
        self.config = config
        self.timeout = DEFAULT_TIMEOUT if timeout is None else timeout
        self.required_gpus = required_gpus
        self.simulated_gpus = simulated_gpus
        self.capture: str = getattr(config.option, "capture", "no")  # nothing sets it with -p no:capture
        self.launcher = Launcher(
            options=options_for_ranks(config),
            args=list(config.args),
            workerinput=workerinput_for_ranks(config),
            cwd=os.getcwd(),
            show_output=self.capture == "no",
        )
        self._said: list[str] = []
        self.on_stop: list[Callable[[], None]] = []
        """Called when the session ends."""
        self.launcher.on_fresh = self._note_fresh
        self.launcher.on_wait = self.say

    def _note_fresh(self, path: str, reason: str) -> None:
        self._said.append(
            f"the ranks of {os.path.relpath(path, self.config.rootpath)} start as interpreters of their own, each "
            f"importing torch anew (seconds, instead of milliseconds): {reason}"
        )

    def say(self, text: str) -> None:
        """Tell the person at the terminal, now."""
        capture = self.config.pluginmanager.getplugin("capturemanager")
        with capture.global_and_fixture_disabled() if capture is not None else contextlib.nullcontext():
            sys.stderr.write(f"\nddpcheck: {text}\n")
            sys.stderr.flush()

    def machine(self) -> Machine:
        """The GPUs of this session: those that torch sees, or simulated ones."""
        if self.simulated_gpus is None:
            return self.launcher.machine()
        return Machine(gpus=tuple(Gpu(token=str(n), key=f"simulated {n}") for n in range(self.simulated_gpus)))

    def start(self) -> None:
        """Start what ranks come from, in the background."""
        with contextlib.suppress(OSError):  # told by the first test that needs it
            self.launcher.start()

    def prepare(self, path: Path) -> None:
        """Get ready for the tests of this file, in the background."""
        with contextlib.suppress(OSError):
            self.launcher.prepare(str(path))

    def stop(self) -> None:
        with contextlib.ExitStack() as ends:  # each is called, whatever another raises
            for end in reversed(self.on_stop):
                ends.callback(end)
            self.launcher.stop()

    # --- one item

    def run_item(self, item: pytest.Item, nextitem: pytest.Item | None, mark: Mark, world_size: int) -> None:
        """Run an item in its ranks and log its reports, as pytest's own protocol does in one process."""

        def run(following: pytest.Item | None, log: bool) -> Attempt:
            return self._logged(item, following, self._attempt(item, mark, world_size), log)

        if run_with_reruns(item, nextitem, lambda following: run(following, log=False)):
            return
        item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
        run(nextitem, log=True)
        item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)

    def _logged(self, item: pytest.Item, nextitem: pytest.Item | None, done: Attempt, log: bool) -> Attempt:
        """Log the reports of subtests, and with ``log`` those of phases; returns what these say in the end."""
        if item.session.shouldfail or item.session.shouldstop:
            nextitem = None
        subtests, reports = list(done.subtests), []
        failed = sum(one.failed for one in subtests)
        for report in done.reports:
            while subtests and (report.when != "setup" or not report.passed):
                item.ihook.pytest_runtest_logreport(report=subtests.pop(0))
            if report.when == "call" and report.passed and failed:
                fail_for_subtests(report, failed)
            if report.when == "teardown":
                report = _tear_down(item, nextitem) or report
            if log:
                item.ihook.pytest_runtest_logreport(report=report)
            reports.append(report)
        if done.leaving is not None:
            raise done.leaving
        return done._replace(reports=reports)

    def _attempt(self, item: pytest.Item, mark: Mark, world_size: int) -> Attempt:
        """Run an item once; whatever goes wrong in doing so is this item's error, and nobody else's."""
        try:
            done = self._run(item, mark, world_size)
            return done._replace(reports=list(done.reports))
        except pytest.exit.Exception:
            raise
        except InternalError as error:
            reason = f"{OUR_FAULT}\n{error}"
        except NobodyToAsk as error:
            reason = nobody_to_ask(error).reason
        except OSError as error:
            self.launcher.drop()
            reason = f"its ranks could not be started: {error}\n{traceback.format_exc()}"
        except Exception:
            self.launcher.drop()
            reason = f"{OUR_FAULT}\n{traceback.format_exc()}"
        return Attempt(_not_run(item, reason))

    def _run(self, item: pytest.Item, mark: Mark, world_size: int) -> Attempt:
        allotted = self._allot(item, mark, world_size)
        if isinstance(allotted, Refusal):
            return Attempt([_refused(item, allotted), plain_report(item, "teardown")])
        base = self._folder(item)
        plan = self._plan(item, mark, world_size, base, allotted)
        if getattr(getattr(item, "obj", None), "is_hypothesis_test", False):
            from ddpcheck.properties.requirements import trouble

            reason = trouble(item.obj, getattr(item, "cls", None))  # type: ignore[attr-defined]
            if reason:
                return Attempt(_not_run(item, reason))
            from ddpcheck.properties.property_item import PropertyRun  # with it comes hypothesis

            # Example by example, in ranks that live as long as their examples pass.
            run = PropertyRun(item, replace(plan, examples=True), self.launcher)  # type: ignore[arg-type]
            record, outcome, reports = run.record, run.outcome, run.reports()
        else:
            record = self.launcher.run(plan)
            outcome = decide(record)
            reports = reports_of(item, record, outcome)
        warned = self._warn(item, record)
        subtests = subtest_reports(item, record)
        self._keep_or_remove(base, outcome.result == "failed" or any(one.failed for one in subtests))
        if outcome.result == "exit":
            return Attempt((), leaving=pytest.exit.Exception(outcome.headline, outcome.exit_code))
        if warned is not None:  # a warning that is an error is the teardown's
            reports = (warned if one.when == "teardown" and one.passed else one for one in reports)
        return Attempt(reports, subtests, phase=outcome.phase, errors=errors_of(record, outcome))

    def _plan(self, item: pytest.Item, mark: Mark, world_size: int, base: Path, allotted: Allotment) -> Plan:
        gpus = self.machine().gpus if allotted.gpus else ()
        simulated = mark.device == "cuda" and self.simulated_gpus is not None
        shared = base / "shared"
        shared.mkdir(mode=0o700)
        return Plan(
            nodeid=item.nodeid,
            path=str(item.path),
            world_size=world_size,
            backend="gloo" if simulated else mark.backend,
            device=mark.device,
            timeout=self._timeout(mark),
            shared_dir=str(shared),
            own_dirs=str(base),
            capture=self.capture,
            gpus=gpus[: allotted.gpus] if simulated else gpus,
            gpus_wanted=allotted.gpus,
            simulated=simulated,
            nccl_shares_gpu=allotted.nccl_shares,
            nccl_variables=sharing_variables(world_size, allotted.gpus, os.environ) if allotted.nccl_shares else {},
        )

    def _timeout(self, mark: Mark) -> float:
        return self.timeout if mark.timeout is None else mark.timeout

    def _folder(self, item: pytest.Item) -> Path:
        name = re.sub(r"\W", "_", item.name, flags=re.ASCII)[:30]  # any locale can write it
        factory: pytest.TempPathFactory = self.config._tmp_path_factory  # type: ignore[attr-defined]
        return factory.mktemp(name, numbered=True)

    def _keep_or_remove(self, base: Path, failed: bool) -> None:
        """Follow pytest's tmp_path_retention_policy with the folders of the ranks."""
        policy = self.config.getini("tmp_path_retention_policy")
        if policy == "none" or (policy == "failed" and not failed):
            shutil.rmtree(base, ignore_errors=True)

    def _allot(self, item: pytest.Item, mark: Mark, world_size: int) -> Allotment | Refusal:
        """The GPUs that a test gets, or why this machine cannot run it."""
        if mark.device != "cuda":
            return Allotment(0)
        wanted = gpu_mark_of(item) or GpuMark()
        if wanted.real and self.simulated_gpus is not None:
            return only_real(wanted)
        title = f"@pytest.mark.ddp(world_size={world_size}, device='cuda')"
        backend = "gloo" if self.simulated_gpus is not None else mark.backend
        return allot(title, world_size, backend, wanted.number, self.machine(), self.required_gpus)

    # --- warnings

    def _warn(self, item: pytest.Item, record: RunRecord) -> pytest.TestReport | None:
        """Issue the warnings of a run; a filter may make an error of one, which is then the test's teardown."""
        call = _called(lambda: self._issue(item, record))
        if call.excinfo is None:
            return None
        report: pytest.TestReport = item.ihook.pytest_runtest_makereport(item=item, call=call)
        return report

    def _issue(self, item: pytest.Item, record: RunRecord) -> None:
        texts, self._said = self._said, []  # each is said once, whatever a filter makes of it
        benchmarks = getattr(item.config, "_benchmarksession", None)
        if "benchmark" in getattr(item, "fixturenames", ()) and benchmarks is not None and not benchmarks.disabled:
            texts.append(_NOT_MEASURED)
        for left in dict.fromkeys(record.leftovers):
            who = f"rank {left.rank}" if left.rank is not None else "a rank"
            texts.append(f"{who} left a {left.kind} running when its test had ended: {left.name}; it was ended")
        refused = []
        for text in texts:
            try:
                item.warn(DdpcheckWarning(text))
            except DdpcheckWarning as error:
                refused.append(str(error))
        for warning in dict.fromkeys(record.warnings):  # several ranks say the same
            _rerecord(item, warning)
        if refused:
            raise DdpcheckWarning("\n".join(refused))


def _not_run(item: pytest.Item, reason: str) -> list[pytest.TestReport]:
    """The reports of a test that fails before it has begun."""
    return [plain_report(item, "setup", "failed", reason), plain_report(item, "teardown")]


def _refused(item: pytest.Item, refusal: Refusal) -> pytest.TestReport:
    """The report of a test that this machine cannot run."""
    if refusal.fails:
        return plain_report(item, "setup", "failed", refusal.reason)
    path, line, _ = item.location
    return plain_report(item, "setup", "skipped", (path, (line or 0) + 1, f"Skipped: {refusal.reason}"))


def _rerecord(item: pytest.Item, record: WarningRecord) -> None:
    """Record here what was recorded in a rank, where the test's filters have been applied already."""
    category: Any = UserWarning
    module = sys.modules.get(record.module)
    found = getattr(module, record.category, None)
    if isinstance(found, type) and issubclass(found, Warning):
        category = found
    message = warnings.WarningMessage(
        message=record.message, category=category, filename=record.file, lineno=record.line
    )
    item.config.hook.pytest_warning_recorded.call_historic(
        kwargs={"warning_message": message, "when": record.when, "nodeid": item.nodeid, "location": None}
    )


def _called(teardown: Callable[[], None]) -> pytest.CallInfo[None]:
    """The call of a part of an item's teardown; what ends a session ends it here, too, as in pytest's own protocol."""
    return pytest.CallInfo.from_call(teardown, "teardown", reraise=(pytest.exit.Exception, KeyboardInterrupt))


def _tear_down(item: pytest.Item, nextitem: pytest.Item | None) -> pytest.TestReport | None:
    """Tear down what items before this one had set up in this process, and the next does not need."""
    state: Any = item.session._setupstate
    call = _called(lambda: state.teardown_exact(nextitem))
    if call.excinfo is None:
        return None
    report: pytest.TestReport = item.ihook.pytest_runtest_makereport(item=item, call=call)
    return report
