"""Claim 25 (S3): env:// takes four variables, MASTER_ADDR, MASTER_PORT, WORLD_SIZE and RANK."""

from __future__ import annotations

import pytest
import torch.distributed as dist

from fixtures import s3_ten_steps
from tests.claims.groups import group_of_its_own, open_store, set_environment


@pytest.mark.ddp(world_size=2)
@pytest.mark.parametrize("name", s3_ten_steps.VARIABLES)
def test_each_missing_variable_is_named(ddp, name, monkeypatch):
    """Without one of the four there is an error at once that names it, from torch and from the document's program."""
    set_environment(monkeypatch, open_store(ddp), ddp.rank, ddp.world_size)
    dist.destroy_process_group()
    monkeypatch.delenv(name)

    with pytest.raises(ValueError, match=f"environment variable {name} expected, but not set"):
        dist.init_process_group("gloo", init_method="env://")
    with pytest.raises(SystemExit, match=f"^{name} must be set"):
        s3_ten_steps.main()

    assert not dist.is_initialized()


@pytest.mark.ddp(world_size=2)
def test_with_all_four_the_group_is_made(ddp, monkeypatch):
    """The twin: nothing else is needed."""
    set_environment(monkeypatch, open_store(ddp), ddp.rank, ddp.world_size)

    with group_of_its_own(init_method="env://"):
        assert (dist.get_rank(), dist.get_world_size()) == (ddp.rank, ddp.world_size)


@pytest.mark.ddp(world_size=2)
@pytest.mark.parametrize(
    ("rank", "words"),
    [("2", "rank < size. 2 vs 2"), ("-1", "rank >= 0. -1 vs 0"), ("one", "invalid literal for int.*'one'")],
)
def test_a_rank_outside_of_the_world_is_refused(ddp, rank, words, monkeypatch):
    """RANK is one of 0 to WORLD_SIZE - 1: gloo tells its number and the world's size, though not the variable."""
    set_environment(monkeypatch, open_store(ddp), ddp.rank, ddp.world_size)
    monkeypatch.setenv("RANK", rank)

    with pytest.raises((RuntimeError, ValueError), match=words), group_of_its_own(init_method="env://"):
        pass


def test_what_the_command_says_of_a_missing_variable(watch):
    """The exception is told as the failure that it is, with the line of init_process_group, and nothing hangs."""
    seen = watch(
        """
        del os.environ["MASTER_ADDR"]
        dist.init_process_group("gloo")
        """
    )
    assert seen.errors == ["rank-failure"]
    (finding,) = seen.findings
    assert "environment variable MASTER_ADDR expected" in finding["found"]
    assert finding["ranks"] == [0, 1]
    assert seen.line(finding) == 'dist.init_process_group("gloo")'


def test_what_the_command_says_of_a_rank_outside_of_the_world(watch):
    """The rank with the wrong number fails at once, and is told as the failure; the other one waits in vain."""
    seen = watch(
        """
        os.environ["RANK"] = str(2 * rank)
        dist.init_process_group("gloo")
        """
    )
    assert seen.errors == ["rank-failure"]
    (finding,) = seen.findings
    assert "2 vs 2" in finding["found"]
    assert seen.line(finding) == 'dist.init_process_group("gloo")'
