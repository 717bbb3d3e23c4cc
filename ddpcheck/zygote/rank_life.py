"""The life of a rank: become one, join the group, run the test, say how it went, and leave."""

from __future__ import annotations

import os
import signal
import sys
from multiprocessing import active_children  # by name, as what follows: a test may replace what it finds there
from os import _exit, getpid
from threading import enumerate as all_threads
from threading import main_thread
from traceback import format_exc
from typing import NoReturn

import pluggy

from ddpcheck.examples.state_machines import refuse_other_ways
from ddpcheck.probes import in_ddp_tests
from ddpcheck.ranks import captured_output, messages, process_group, stacks
from ddpcheck.ranks.channel import Channel, Closed, Taken
from ddpcheck.ranks.current_rank import CurrentRank, set_current
from ddpcheck.ranks.process_ties import adopt_orphans, children, describe, die_with_parent, is_childless
from ddpcheck.ranks.pytest_host import CannotCollect, Host, RankReporter, capture_anew, give_own_folders
from ddpcheck.vocabulary.lost_peers import is_reaction
from ddpcheck.vocabulary.model import Leftover, Plan
from ddpcheck.vocabulary.wording import OUR_FAULT
from ddpcheck.zygote.imports import restore_cuda_check, restore_thread_settings


def be_rank(host: Host, plan: Plan, rank: int, channel: Channel, run_dir: str, parent: int) -> NoReturn:
    """Live as this rank until the process ends. Never returns and never raises."""
    code = 1
    try:
        channel = channel.moved_out_of_reach()
        try:
            _become(rank, plan, run_dir, parent, host.hello.interruptible)
            assert host.session is not None
            config = host.session.config
            give_own_folders(config, plan, rank)
            item = host.item(plan)
            capture_anew(config, plan.capture)
            if plan.simulated:
                _simulate(len(plan.gpus), plan.backend)
            process_group.join(plan, rank, run_dir)
            in_ddp_tests.begin()
            set_current(CurrentRank(plan, rank, run_dir, channel))
            channel.send(messages.Joined())
            # No body begins before every rank has every connection: a short
            # one would leave while its peers still connect to it.
            begin = channel.receive()
            assert isinstance(begin, messages.Go)
        except Closed:
            raise
        except CannotCollect as error:
            channel.send(messages.CouldNotStart(text=str(error)))
            raise
        except BaseException as error:
            channel.send(messages.CouldNotStart(text=format_exc(), reaction=is_reaction(error)))
            raise
        reporter = RankReporter(plan, rank, channel)
        reporter.register(config)
        if plan.world_size > 1:
            refuse_other_ways()
        if plan.examples:
            from ddpcheck.examples.rank_side import Follower  # with it comes hypothesis

            pluggy.PluginManager.register(config.pluginmanager, Follower(item, channel), "ddpcheck-follower")
        item.ihook.pytest_runtest_protocol(item=item, nextitem=None)
        leftovers = _leftovers(rank)
        save_coverage()
        channel.send(messages.Done(leftovers=leftovers, leaving=reporter.leaving))
        code = 0
        # What was begun in a teardown, and not waited for, may still be under way.
        may_leave = channel.receive()
        assert isinstance(may_leave, messages.Leave)
        process_group.leave(plan)
    except Taken as error:
        captured_output.leave_word(run_dir, rank, f"{error}. Let it close what it has opened, and nothing else.")
    except (Closed, CannotCollect):
        pass
    except BaseException:
        captured_output.leave_word(run_dir, rank, f"{OUR_FAULT}\n{format_exc()}")
    finally:
        # Not sys.exit: gloo's threads may abort a correct program while the
        # interpreter is torn down, and all that matters has been said.
        _exit(code)


def _become(rank: int, plan: Plan, run_dir: str, parent: int, interruptible: bool) -> None:
    die_with_parent(parent)
    adopt_orphans()
    os.setsid()  # a signal to the group of a rank is its own, as under torchrun
    signal.signal(signal.SIGINT, signal.default_int_handler if interruptible else signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    stacks.arm(run_dir, rank)
    restore_thread_settings()
    restore_cuda_check()
    os.environ.update(process_group.environment(plan, rank, run_dir))
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        # Interpreters of their own would have seeds of their own; a fork copies its parent's.
        numpy.random.seed()


def _simulate(gpus: int, backend: str) -> None:
    """Have this many simulated devices, to the end of this process."""
    from ddpcheck.device_simulation.simulation import rehearse

    rehearse(gpus, backend)


def _leftovers(rank: int) -> tuple[Leftover, ...]:
    """What the test has left running in this rank: threads that are no daemons, and processes."""
    found = [
        Leftover(kind="thread", name=thread.name, rank=rank)
        for thread in all_threads()
        if thread is not main_thread() and not thread.daemon
    ]
    for process in active_children():
        own = getattr(process, "_parent_pid", None) == getpid()  # a fork lists its parent's as well
        if own and process.daemon:  # an ordinary exit would end these
            process.terminate()
            process.join(0.5)
    if not is_childless():
        found += [
            Leftover(kind="process", name=describe(process), rank=rank)
            for process in children()
            if "resource_tracker" not in describe(process)  # multiprocessing's own; it ends with the rank
        ]
    return tuple(found)


def save_coverage() -> None:
    """Save what coverage has measured in this process, before anybody is told that it is done."""
    module = sys.modules.get("coverage")
    measuring = module.Coverage.current() if module is not None else None
    if measuring is not None:
        measuring.stop()
        measuring.save()
