"""Paths from the root of the repository."""

from __future__ import annotations

import pytest

from ddpcheck.report.repository_paths import Repository, repository, service
from tests.report.verdicts import ERROR, WARNING, site


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({}, None),
        ({"CI": "true"}, None),
        ({"GITHUB_ACTIONS": "true"}, "github"),
        ({"GITHUB_ACTIONS": "false"}, None),
        ({"GITLAB_CI": "true"}, "gitlab"),
    ],
)
def test_the_service_says_of_itself_what_it_is(environment, expected):
    """By the variable that its documentation names."""
    assert service(environment) == expected


@pytest.mark.parametrize(
    ("file", "expected"),
    [
        ("train.py", "sub/train.py"),
        ("a b/ü.py", "sub/a b/ü.py"),
        ("../other/loop.py", "other/loop.py"),
        ("/repository/loop.py", "loop.py"),
        ("/repository/..loop.py", "..loop.py"),
        ("/elsewhere/loop.py", None),
        ("../../loop.py", None),
        ("/repository2/loop.py", None),
        ("/repository/.venv/lib/python3.11/site-packages/trainer/loop.py", None),
        ("<string>", None),
        ("", None),
    ],
)
def test_a_path_is_relative_to_the_root(file, expected):
    """What is not of the repository has none."""
    assert Repository("/repository", "/repository/sub").path_of(file) == expected


def test_links_lead_to_the_repository(tmp_path):
    """The service may name its folder by another way than the ranks do."""
    (tmp_path / "real" / "sub").mkdir(parents=True)
    (tmp_path / "link").symlink_to("real")
    (tmp_path / "real" / "train.py").symlink_to(tmp_path / "elsewhere.py")
    assert Repository(str(tmp_path / "link"), str(tmp_path / "real" / "sub")).path_of("loop.py") == "sub/loop.py"
    assert Repository(str(tmp_path / "real"), str(tmp_path / "link" / "sub")).path_of("loop.py") == "sub/loop.py"
    assert Repository(str(tmp_path / "real"), str(tmp_path / "real")).path_of("train.py") == "train.py"


def test_the_root_is_what_was_checked_out(tmp_path):
    """By the service, at a path of the job's choice perhaps; by git; or the folder itself."""
    inner = tmp_path / "work" / "checked" / "sub"
    inner.mkdir(parents=True)
    job = {"GITHUB_WORKSPACE": str(tmp_path / "work")}
    assert repository(str(inner), {}).root == str(inner)
    assert repository(str(inner), job).root == str(tmp_path / "work")
    (tmp_path / "work" / "checked" / ".git").mkdir()
    assert repository(str(inner), {}).root == str(tmp_path / "work" / "checked")
    assert repository(str(inner), job).root == str(tmp_path / "work" / "checked")
    (tmp_path / "work" / ".git").write_text("")  # what is below is a submodule
    assert repository(str(inner), job).root == str(tmp_path / "work")
    assert repository("/elsewhere", job).root == str(tmp_path / "work")
    assert repository(str(inner), {"CI_PROJECT_DIR": str(tmp_path / "work")}).root == str(tmp_path / "work")
    assert repository(str(inner), {"CI_PROJECT_DIR": "relative"}).root == str(tmp_path / "work" / "checked")


def test_what_has_no_line_is_put_on_the_script():
    """For those that can show nothing without one."""
    here = Repository("/repository", "/repository/sub", "train.py")
    assert here.place(ERROR) == ("sub/train.py", 5, True, False)
    assert here.place(WARNING) == ("sub/train.py", 1, True, True)
    assert here.place_of(site(0, file="/elsewhere/x.py")) == ("/elsewhere/x.py", 1, False, False)
