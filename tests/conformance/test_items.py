"""`parametrize_with_checks`: one pytest item for each check and world size, in a session like any other."""

from __future__ import annotations

import pytest

import ddpcheck
from fixtures.trainers import plain
from tests.inner import InnerProject

PROJECT = """
    import pytest, ddpcheck
    from functools import partial
    from fixtures.trainers import plain, wrong

    QUICK = ["adapter", "batch-count", "rank-failure"]

    @ddpcheck.parametrize_with_checks(plain.fit, world_sizes=[1, 2], checks=QUICK)
    def test_right(check):
        check()

    @ddpcheck.parametrize_with_checks(lambda job: wrong.returns_early(job), world_sizes=[2], checks=QUICK)
    def test_wrong(check):
        check()

    class TestKnown:
        @ddpcheck.parametrize_with_checks(
            partial(wrong.swallows_exceptions), world_sizes=[2], checks=QUICK,
            expected_failures={"rank-failure": "it swallows exceptions"},
        )
        def test_known(self, check):
            check()

    @pytest.mark.ddp
    def test_beside(ddp):
        assert ddp.world_size == 2
"""


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> InnerProject:
    made = InnerProject(tmp_path_factory.mktemp("items") / "project")
    made.write("test_trainers.py", PROJECT)
    return made


@pytest.mark.long
def test_items_are_told_one_by_one(project: InnerProject) -> None:
    """Each with an id that says its check and world size; violated, not checked and expected are told apart."""
    ran = project.run("test_trainers.py")
    assert {name: seen.outcome for name, seen in ran.tests.items()} == {
        "test_right[adapter-1rank]": "passed",
        "test_right[adapter-2ranks]": "passed",
        "test_right[batch-count-1rank]": "passed",
        "test_right[batch-count-2ranks]": "passed",
        "test_right[rank-failure-1rank]": "passed",
        "test_right[rank-failure-2ranks]": "passed",
        "test_wrong[adapter-2ranks]": "failed",
        "test_wrong[batch-count-2ranks]": "skipped",
        "test_wrong[rank-failure-2ranks]": "skipped",
        "TestKnown::test_known[adapter-2ranks]": "passed",
        "TestKnown::test_known[batch-count-2ranks]": "passed",
        "TestKnown::test_known[rank-failure-2ranks]": "xfailed",
        "test_beside": "passed",
    }
    assert "it returned after 3 batches of 9" in ran["test_wrong[adapter-2ranks]"].text
    assert "the adapter has to be right first" in ran["test_wrong[batch-count-2ranks]"].text
    assert ran["TestKnown::test_known[rank-failure-2ranks]"].xfail == "it swallows exceptions"
    assert project.leftover_processes() == []
    assert project.leftover_folders() == []


@pytest.mark.long
def test_they_are_selected_and_distributed_like_others(project: InnerProject) -> None:
    """-k by check and world size, in pytest-xdist's workers."""
    ran = project.run("test_trainers.py", "-n", "2", "-k", "batch-count and 2ranks or beside")
    assert {name: seen.outcome for name, seen in ran.tests.items()} == {
        "test_right[batch-count-2ranks]": "passed",
        "test_wrong[batch-count-2ranks]": "skipped",
        "TestKnown::test_known[batch-count-2ranks]": "passed",
        "test_beside": "passed",
    }


def test_a_test_that_does_not_take_its_check_is_refused() -> None:
    """It would pass without having checked anything."""
    with pytest.raises(TypeError, match=r"has to take `check`, and call it: def test_trainer\(check\): check\(\)"):

        @ddpcheck.parametrize_with_checks(plain.fit)
        def test_trainer() -> None: ...


def test_a_check_outside_of_its_session_says_so() -> None:
    """Called by hand, there are no ranks to train in."""

    @ddpcheck.parametrize_with_checks(plain.fit, checks=["adapter"])
    def test_trainer(check: object) -> None: ...

    (mark,) = test_trainer.pytestmark  # type: ignore[attr-defined]
    check = mark.args[1][0].values[0]
    with pytest.raises(RuntimeError, match="outside of its test"):
        check()
