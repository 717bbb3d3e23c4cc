"""Wrong marks fail at collection, with a sentence that names the mark and the fix."""

from __future__ import annotations

import pytest

from tests.inner import InnerProject

WRONG = [
    ("@pytest.mark.ddp(world_size=0)", "name a world size, such as 2"),
    ("@pytest.mark.ddp(world_size='two')", "a world size is a whole number"),
    ("@pytest.mark.ddp(world_size=[])", "the list is empty"),
    ("@pytest.mark.ddp(backend='glo')", "did you mean 'gloo'?"),
    ("@pytest.mark.ddp(word_size=2)", "did you mean 'world_size'?"),
    ("@pytest.mark.ddp(device='cuda:1')", "say 'cuda'"),
    ("@pytest.mark.ddp(timeout=-1)", "a number of seconds above 0"),
    ("@pytest.mark.ddp(backend='nccl')", "needs device='cuda'"),
    ("@pytest.mark.ddp(2)", "write world_size=2"),
]


def test_each_wrong_mark_is_a_sentence(project: InnerProject) -> None:
    """All of them are reported in one session, each by its own file, before any test runs."""
    for number, (mark, _) in enumerate(WRONG):
        project.write(f"test_{number}.py", f"import pytest\n{mark}\ndef test_it(ddp): pass\n")
    project.write("test_async.py", "import pytest\n@pytest.mark.ddp\nasync def test_it(ddp): pass\n")
    ran = project.run()
    assert ran.code == pytest.ExitCode.INTERRUPTED
    assert not any("call" in seen.phases for seen in ran.tests.values())
    for number, (mark, fix) in enumerate(WRONG):
        lines = [line for line in ran.stdout.splitlines() if f"test_{number}.py::test_it: " in line]
        assert lines, ran.stdout
        assert fix in lines[0]
        assert mark.split("(")[0] in lines[0]
    assert "test_async.py::test_it: @pytest.mark.ddp cannot run an async test" in ran.stdout
    assert "Traceback" not in ran.stdout + ran.stderr


def test_a_wrong_mark_on_a_unittest_method(project: InnerProject) -> None:
    """Methods of unittest cannot be multiplied; the sentence says so."""
    project.write(
        "test_unit.py",
        """
        import pytest, unittest
        class TestIt(unittest.TestCase):
            @pytest.mark.ddp(world_size=[2, 4])
            def test_it(self): pass
        """,
    )
    ran = project.run()
    assert ran.code == pytest.ExitCode.USAGE_ERROR
    assert "cannot multiply a method of unittest.TestCase" in ran.stderr


@pytest.mark.long
def test_the_fixture_without_the_mark(project: InnerProject) -> None:
    """A test that asks for ddp and is not marked is told so."""
    project.write("test_it.py", "def test_it(ddp): pass\n")
    ran = project.run()
    assert ran["test_it"].outcome == "error"
    assert "Mark the test with @pytest.mark.ddp" in ran["test_it"].text


@pytest.mark.parametrize(
    ("args", "ini", "words"),
    [
        (["--ddp-timeout", "0"], "", "--ddp-timeout 0: expected a number above 0"),
        (["--ddp-timeout", "soon"], "", "invalid float value: 'soon'"),
        ([], "ddp_timeout = soon", "ddp_timeout = soon in the ini file: expected a number"),
    ],
)
def test_wrong_options(project: InnerProject, args: list[str], ini: str, words: str) -> None:
    """A wrong value of an option, or of its twin in the ini file, ends the session with a sentence."""
    project.write("pytest.ini", f"[pytest]\n{ini}\n")
    project.write("test_it.py", "def test_it(): pass\n")
    ran = project.run(*args)
    assert ran.code == pytest.ExitCode.USAGE_ERROR
    assert words in ran.stderr
    assert "Traceback" not in ran.stderr


@pytest.mark.long
def test_gpu_tests_are_skipped_without_gpus_and_fail_where_gpus_are_required(project: InnerProject) -> None:
    """Too few GPUs skip with the reason; --ddp-require-gpus makes that a failure."""
    torch = pytest.importorskip("torch")
    if torch.cuda.is_available():
        pytest.skip("there is a GPU here")
    project.write(
        "test_it.py",
        """
        import pytest
        @pytest.mark.ddp(device="cuda", backend="nccl")
        def test_ranks(ddp): pass
        @pytest.mark.gpu
        def test_plain(): pass
        def test_other(): pass
        """,
    )
    skipped = project.run("-m", "gpu")
    assert skipped["test_ranks"].outcome == skipped["test_plain"].outcome == "skipped"
    assert "needs 1 GPU, and torch sees no GPU" in skipped["test_ranks"].text
    assert "test_other" not in skipped.tests
    required = project.run("-m", "gpu", "--ddp-require-gpus", "1")
    assert required["test_ranks"].outcome == required["test_plain"].outcome == "error"
    assert "--ddp-require-gpus 1 was given" in required["test_ranks"].text


@pytest.mark.parametrize(
    ("mark", "words"),
    [
        ("world_size=[2, 3]", "cannot multiply a test that has been collected already"),
        ("world_size=0", "name a world size, such as 2"),
    ],
)
@pytest.mark.few(1)
def test_a_wrong_mark_that_a_conftest_file_adds(project: InnerProject, mark: str, words: str) -> None:
    """It is a sentence as well, and no test runs with fewer ranks than it says."""
    hook = "import pytest\ndef pytest_collection_modifyitems(items):\n    items[0].add_marker(pytest.mark.ddp({}))\n"
    project.write("conftest.py", hook.format(mark))
    project.write("test_it.py", "def test_it(): pass\n")
    ran = project.run()
    assert ran.code == pytest.ExitCode.USAGE_ERROR
    assert words in ran.stderr, ran.stdout + ran.stderr
    assert "INTERNALERROR" not in ran.stdout + ran.stderr
    assert ran.tests == {}
