"""The kernel's count of processes that it has ended for want of memory."""

from __future__ import annotations

import pytest

from ddpcheck.run.memory_kills import counted


@pytest.fixture
def root(tmp_path):
    """A machine with a count of its own."""
    (tmp_path / "proc/self").mkdir(parents=True)
    (tmp_path / "proc/vmstat").write_text("nr_free_pages 9\noom_kill 7\n")
    return tmp_path


def write(root, path, text):
    (root / path).parent.mkdir(parents=True, exist_ok=True)
    (root / path).write_text(text)


EVENTS = "low 0\nhigh 0\nmax 4\noom 2\noom_kill 3\n"


@pytest.mark.parametrize(
    ("groups", "path", "text"),
    [
        ("0::/user.slice/job\n", "sys/fs/cgroup/user.slice/job/memory.events", EVENTS),
        ("0::/\n", "sys/fs/cgroup/memory.events", EVENTS),
        ("0::/of/the/host\n", "sys/fs/cgroup/memory.events", EVENTS),
        ("4:memory:/job\n0::/\n", "sys/fs/cgroup/memory/job/memory.oom_control", "under_oom 0\noom_kill 3\n"),
    ],
    ids=["a group", "a container", "a container that sees the host's name", "version 1"],
)
def test_a_control_group_counts_for_itself(root, groups, path, text):
    """Other jobs of the machine are none of ours."""
    write(root, "proc/self/cgroup", groups)
    write(root, path, text)
    assert counted(root) == 3


def test_without_one_the_machine_s_count_is_taken(root):
    """A process that is in no group, or in one that counts nothing."""
    write(root, "proc/self/cgroup", "0::/\n")
    assert counted(root) == 7


def test_where_nothing_counts_nothing_is_known(tmp_path):
    """Another system than Linux."""
    assert counted(tmp_path) is None
