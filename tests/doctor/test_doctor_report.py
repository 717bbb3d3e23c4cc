"""What the doctor shows, from facts that are made up."""

from __future__ import annotations

import io
import json
import math

import pytest
from msgspec.structs import replace

from ddpcheck.doctor import doctor_report
from ddpcheck.doctor.advice import MOST_LINES, PRINTED, gist
from ddpcheck.doctor.facts import Examination, Gpu, Limit, Machine, Seam, SelfTest, Stack, Torch, Unknown

GB = 1 << 30
WHY = Unknown(why="OSError: no such thing")

MACHINE = Machine(
    python="3.11.7 (CPython, /usr/bin/python3)",
    system="Linux 6.1, x86_64",
    cores=Limit(total=8, free=8),
    memory=Limit(total=16 * GB, free=12 * GB),
    shared_memory=Limit(total=8 * GB, free=8 * GB),
    files=Limit(total=20_000, free=19_990),
    loopback="lo, 127.0.0.1",
    packages={"pytest": "9.2.0", "hypothesis": None},
)
A_GPU = Gpu(name="NVIDIA H100", memory=80 * GB, uuid="GPU-1")
TORCH = Torch(
    version="2.15.0", build="CUDA 13.0", backends=("gloo", "nccl"), nccl=(2, 30, 7), gpus=(A_GPU,), driver="590.1"
)
ON_CPU = replace(TORCH, build="CPU only", backends=("gloo",), nccl=None, gpus=(), driver=None)
GLOO = SelfTest(backend="gloo", device="cpu", outcome="passed", seconds=0.25)
NCCL = SelfTest(backend="nccl", device="cuda", outcome="passed", seconds=1.5)


def examination(machine=MACHINE, torch=TORCH, tests=(GLOO, NCCL)):
    stack = Stack(tests=tests, ranks_start="forked", seconds=4.2)
    return Examination(machine=machine, torch=torch, stack=stack)


def rows(**parts):
    """The rows of all sections, by label."""
    return {row.label: row for section in doctor_report.sections(examination(**parts)) for row in section.rows}


def shown(**parts):
    stream = io.StringIO()
    doctor_report.show(examination(**parts), stream)
    return stream.getvalue()


def test_a_machine_with_a_gpu():
    """Each fact has its line; several ranks may share the GPU under an NCCL that can."""
    found = rows()
    assert found["cores"].text == "8"
    assert found["memory"].text == "16.0 GB, 12.0 GB free"
    assert found["torch"].text == "2.15.0 (CUDA 13.0)"
    assert found["backends"].text == "gloo yes, nccl yes, mpi no, ucc no"
    assert found["NCCL"].text == "2.30.7"
    assert found["GPU 0"].text == "NVIDIA H100, 80.0 GB, GPU-1"
    assert found["driver"].text == "590.1"
    assert found["ranks on a GPU"].text == (
        "under gloo any number; under NCCL 2.30.7 several, with NCCL_MULTI_RANK_GPU_ENABLE=1"
    )
    assert found["packages"].text == "pytest 9.2.0, hypothesis no"
    assert {row.kind for row in found.values()} == {"fact"}


@pytest.mark.parametrize(("nccl", "words"), [
    ((2, 29, 9), "under NCCL 2.29.9 one (NCCL 2.30, as torch 2.14 ships it, lets several share)"),
    ((2, 30, 0), "under NCCL 2.30.0 several"),
    ((3, 0, 0), "under NCCL 3.0.0 several"),
    (None, "under gloo any number"),
    (WHY, "its version is not known"),
])  # fmt: skip
def test_who_may_share_a_gpu(nccl, words):
    """It is NCCL's version that decides."""
    assert words in rows(torch=replace(TORCH, nccl=nccl))["ranks on a GPU"].text


def test_a_machine_without_a_gpu():
    """That there is none is a fact, and no concern."""
    found = rows(torch=ON_CPU)
    assert found["GPUs"].text == "none; this build of torch would see none"
    assert found["NCCL"].text == "not in this build"
    assert "driver" not in found
    blind = replace(ON_CPU, build="CUDA 13.0")
    assert rows(torch=blind)["GPUs"].text == "none"
    assert rows(torch=replace(blind, trouble="Found no driver"))["GPUs"].text == "none: Found no driver"


def test_backends_that_are_not_tested():
    """MPI is told, and that nothing tests it."""
    told = rows(torch=replace(TORCH, backends=("gloo", "mpi")))["backends"].text
    assert told == "gloo yes, nccl no, mpi yes, ucc no (mpi: not tested, since ddp tests have gloo and nccl)"


@pytest.mark.parametrize(("name", "label"), [
    ("python", "Python"), ("system", "system"), ("cores", "cores"), ("memory", "memory"),
    ("shared_memory", "shared memory"), ("files", "open files"), ("loopback", "loopback"), ("packages", "packages"),
])  # fmt: skip
def test_what_the_system_does_not_tell(name, label):
    """Each question without an answer is a line that says why."""
    row = rows(machine=replace(MACHINE, **{name: WHY}))[label]
    assert (row.kind, row.text) == ("unknown", "unknown: OSError: no such thing")


@pytest.mark.parametrize(("name", "label"), [
    ("version", "torch"), ("build", "torch"), ("backends", "backends"), ("nccl", "NCCL"), ("gpus", "GPUs"),
    ("driver", "driver"),
])  # fmt: skip
def test_what_torch_does_not_tell(name, label):
    """So is each of torch's; and where it could not be asked at all, that is one line."""
    if name == "build":
        assert rows(torch=replace(TORCH, build=WHY))["torch"].text.startswith("2.15.0")
    else:
        assert rows(torch=replace(TORCH, **{name: WHY}))[label].text == "unknown: OSError: no such thing"


def test_no_torch_at_all_is_one_line():
    """Its six questions have one reason."""
    nothing = Torch(version=WHY, build=WHY, backends=WHY, nccl=WHY, gpus=WHY, driver=WHY)
    _, torch = doctor_report.sections(examination(torch=nothing))
    assert [row.label for row in torch.rows] == ["torch"]


@pytest.mark.parametrize(("name", "label", "limit", "words"), [
    ("cores", "cores", Limit(total=8, free=2), "8 (2 for this process)"),
    ("files", "open files", Limit(total=256, free=250), "ulimit -n"),
    ("shared_memory", "shared memory", Limit(total=64 << 20, free=64 << 20), "--shm-size"),
    ("memory", "memory", Limit(total=2 * GB, free=GB // 2), "little"),
])  # fmt: skip
def test_what_is_scarce(name, label, limit, words):
    """What will soon run out is told with what to do."""
    assert words in rows(machine=replace(MACHINE, **{name: limit}))[label].text


# --- the self-tests


@pytest.mark.parametrize(("text", "torch", "shown_as"), [
    ("@pytest.mark.ddp(device='cuda') needs 1 GPU, and torch sees no GPU", ON_CPU, "no GPU"),
    ("@pytest.mark.ddp(device='cuda') needs NCCL 2.30", TORCH, "it needs NCCL 2.30"),
    ("another reason", TORCH, "another reason"),
])  # fmt: skip
def test_what_cannot_be_tested_is_no_failure(text, torch, shown_as):
    """The reason is shown, and the verdict is about the rest."""
    untestable = replace(NCCL, outcome="untestable", text=text)
    assert doctor_report.outcome_of(untestable, torch) == f"not testable here: {shown_as}"
    seen = examination(torch=torch, tests=(GLOO, untestable))
    assert seen.stack.healthy
    assert doctor_report.verdict(seen) == "HEALTHY  gloo on the CPU works here; self-test in 4.2 s."


def test_everything_works():
    """All that was tested is named."""
    assert (
        doctor_report.verdict(examination())
        == "HEALTHY  gloo on the CPU and nccl on GPUs work here; self-test in 4.2 s."
    )


def test_a_failure():
    """What failed is named, with the lines that say why, and what to do."""
    text = "rank 1 failed first (of 2 ranks)\n\n    def test():\n>       step()\nE       Failed: 0.weight differs\n"
    failed = replace(NCCL, outcome="failed", text=text, advice="Reinstall torch.")
    seen = examination(tests=(GLOO, failed))
    assert not seen.stack.healthy
    assert doctor_report.verdict(seen) == "UNHEALTHY  1 self-test of 2 failed in 4.2 s: nccl on GPUs."
    told = shown(tests=(GLOO, failed))
    assert "FAIL  nccl on GPUs     rank 1 failed first (of 2 ranks)\n" in told
    assert "Failed: 0.weight differs" in told
    assert "def test()" not in told
    assert "        fix   Reinstall torch." in told


CRASHED = f"""\
rank 1 failed first: it was killed by SIGABRT before the test's body ended (of 2 ranks)
The Python stack of rank 1 at that moment:
Fatal Python error: Aborted

Thread 0x00000000000000b1 (most recent call first):
  File "/lib/threading.py", line 9 in wait
{{more}}
Current thread 0x00000000000000a0 (most recent call first):
  File "/lib/torch/distributed.py", line 7 in all_reduce
  File "/lib/_pytest/python.py", line 8 in pytest_pyfunc_call
{{more}}
Extension modules: numpy, torch._C (total: 2)
--- the other ranks ---
rank 0 could not start: Extension modules: numpy, torch._C (total: 2)
{PRINTED}{{noise}}terminate called
  what():  no such symbol
"""


def test_a_crash():
    """Its last words and the innermost calls of its thread are shown: not the end of a dump, however long it is."""
    more = '  File "/lib/pluggy/_hooks.py", line 9 in call\n' * 40
    assert gist(CRASHED.format(more=more, noise="")).splitlines() == [
        "rank 1 failed first: it was killed by SIGABRT before the test's body ended (of 2 ranks)",
        "The Python stack of rank 1 at that moment:",
        "terminate called",
        "  what():  no such symbol",
        "Fatal Python error: Aborted",
        "/lib/torch/distributed.py:7 in all_reduce",
    ]
    first, left_out, *rest = gist(CRASHED.format(more=more, noise="noise\n" * 40)).splitlines()
    assert first.startswith("rank 1 failed first")
    assert left_out == "…"
    assert rest[-3:] == ["  what():  no such symbol", "Fatal Python error: Aborted", rest[-1]]
    assert len(rest) == MOST_LINES + 2


def test_what_ranks_have_printed_hides_no_error():
    """Where pytest tells an error, or there are stacks, it is these that are shown."""
    assert gist(f"first\nE   Failed: it\n{PRINTED}" + "noise\n" * 40) == "first\nFailed: it"
    assert gist(f"timed out\nthe stack\n{PRINTED}" + "noise\n" * 40) == "timed out\nthe stack"


def test_nothing_tested_is_not_healthy():
    """Where no self-test could be run, nothing is known to work."""
    seen = examination(tests=(replace(GLOO, outcome="untestable", text="no ranks"),))
    assert not seen.stack.healthy
    assert doctor_report.verdict(seen).startswith("UNHEALTHY  no self-test could be run")


def test_lines_fit(monkeypatch):
    """At 80 columns and far fewer, in any encoding, nothing is cut off and no line is wider."""
    for columns in (80, 40):
        monkeypatch.setenv("COLUMNS", str(columns))
        told = shown(machine=replace(MACHINE, loopback=Unknown(why="x" * 200 + "\x1b[31m")))
        assert max(map(len, told.splitlines())) <= columns
        assert "\x1b" not in told
        assert "".join(told.split()).count("x") >= 200
    stream = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    doctor_report.show(examination(), stream)


def test_the_json(tmp_path):
    """The same facts; what is not known is an object that says why, and numbers are numbers."""
    file = tmp_path / "doctor.json"
    doctor_report.write(examination(machine=replace(MACHINE, memory=WHY)), file)
    document = json.loads(file.read_text())
    assert document["schema"] == 1
    assert document["healthy"] is True
    assert document["machine"]["memory"] == {"unknown": "OSError: no such thing"}
    assert document["machine"]["cores"] == {"total": 8, "free": 8}
    assert document["torch"]["nccl"] == [2, 30, 7]
    assert document["torch"]["gpus"] == [{"name": "NVIDIA H100", "memory": 80 * GB, "uuid": "GPU-1"}]
    assert [test["outcome"] for test in document["stack"]["tests"]] == ["passed", "passed"]
    assert math.isclose(document["stack"]["seconds"], 4.2)


# --- seams


def seam(name, there=True):
    return Seam(name=f"torch.{name}", purpose="every step", of="torch 2.15.0", there=there, rests=("no-hang", "a"))


def test_seams_that_are_all_there_take_a_line():
    """And each has one where they are asked for."""
    torch = replace(TORCH, seams=(seam("one"), seam("other")))
    assert rows(torch=torch)["seams"].text == "2 of 2 places that probes rest on"
    assert [s.title for s in doctor_report.sections(examination(torch=torch))] == ["machine", "torch"]
    listed = doctor_report.sections(examination(torch=torch), seams=True)[-1]
    assert listed.title == "seams"
    assert listed.rows[0].label == "seen in"
    assert listed.rows[1].text == "every step: needed by no-hang, a\n  torch.one, .other"
    assert any("the pytest plugin" in row.text and "_pytest" in row.text for row in listed.rows[2:])


def test_a_seam_that_is_missing_is_told_with_what_is_not_checked():
    """In the terminal and as JSON; the stack is healthy all the same."""
    torch = replace(TORCH, seams=(seam("one"), seam("other", there=False)))
    section = doctor_report.sections(examination(torch=torch))[-1]
    assert [(row.text, row.kind) for row in section.rows[-2:]] == [
        ("1 of 2 places that probes rest on", "concern"),
        ("torch 2.15.0 has no torch.other; not checked: no-hang, a", "concern"),
    ]
    assert "has no torch.other" in " ".join(shown(torch=torch).split())
    listed = doctor_report.sections(examination(torch=torch), seams=True)[-1]
    assert ("missing", "torch.other", "concern") in listed.rows
    assert doctor_report.verdict(examination(torch=torch)).startswith("HEALTHY")


def test_seams_that_are_not_known_have_a_reason():
    """As all facts."""
    assert rows(torch=replace(TORCH, seams=WHY))["seams"].text == f"unknown: {WHY.why}"
