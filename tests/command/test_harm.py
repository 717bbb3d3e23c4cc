"""Programs that recording could have harmed: they run as they would have, and nothing of ours is put down to them."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import psutil
from running import run, script

CASES = Path(__file__).parents[2] / "fixtures" / "cases" / "run"


def test_a_program_that_reuses_descriptors_keeps_its_database(tmp_path, forks):
    """It closes what it has inherited, and opens its own file: not a byte of ours comes into that."""
    ran = run(tmp_path, "--nproc-per-node", "2", CASES / "reused_descriptor.py", tmp_path / "metrics", forks=forks)
    assert (ran.code, ran.document["verdict"]) == (0, "held"), ran.err
    assert ran.out.count("rows [(5,)]") == 2
    assert ran.document["checks"]["gradient-sync"]["checked"] == 5
    assert not any("evidence" in note for note in ran.document["notes"])
    for rank in (0, 1):
        (found,) = sqlite3.connect(tmp_path / f"metrics.{rank}.db").execute("pragma integrity_check").fetchone()
        assert found == "ok"


def test_damaged_evidence_is_a_note(tmp_path, forks):
    """The training goes on to its own end, and what is known of it is judged."""
    path = script(
        tmp_path,
        """
        import glob
        model, optimizer = setup()
        step(model, optimizer)
        if dist.get_rank() == 1:
            (mine,) = glob.glob(os.environ["DDPCHECK_EVIDENCE"] + f"/*-{os.getpid()}-*")
            with open(mine, "ab") as file:
                file.write(b"\\x05\\x00\\x00\\x00\\xc1\\xc1\\xc1\\xc1\\xc1")
        time.sleep(1)
        for _ in range(2):
            step(model, optimizer)
        dist.destroy_process_group()
        sys.stdout.write("done\\n")
        """,
    )
    ran = run(tmp_path, "--nproc-per-node", "2", path, forks=forks)
    assert (ran.code, ran.document["verdict"], ran.document["findings"]) == (0, "held", []), ran.err
    assert ran.out.count("done") == 2
    assert ran.document["notes"][0].startswith("The evidence of rank 1 is damaged: 9 bytes")
    assert "in a part of the run" in " ".join(ran.err.split())  # lines are folded, by the length of the path


def test_a_crash_in_our_own_frames_is_ours(tmp_path, forks):
    """Exit 4, and no finding: the program has done nothing wrong."""
    path = script(
        tmp_path,
        """
        import ctypes
        from ddpcheck.probes.digests import fast_digests as quick
        model, optimizer = setup()
        step(model, optimizer)
        if dist.get_rank() == 1:
            quick._queued = lambda *given: ctypes.string_at(0)
        step(model, optimizer)
        """,
    )
    ran = run(tmp_path, "--nproc-per-node", "2", path, forks=forks)
    assert ran.code == 4, ran.err
    assert ran.document["findings"] == []
    (told,) = ran.document["internal"]
    assert "SIGSEGV while ddpcheck read the memory of its tensors" in told
    assert "This is a defect of ddpcheck, not of the program" in ran.err


def test_ranks_do_not_outlive_a_killed_agent(tmp_path, forks):
    """They are ended in its place, and the finding names the agent."""
    path = script(
        tmp_path,
        """
        model, optimizer = setup()
        open(f"rank{dist.get_rank()}", "w").write(str(os.getpid()))
        step(model, optimizer)
        if dist.get_rank() == 0:
            os.kill(os.getppid(), 9)
        time.sleep(1000)
        """,
    )
    ran = run(tmp_path, "--nproc-per-node", "2", path, forks=forks)
    assert (ran.code, ran.document["verdict"]) == (1, "failed"), ran.err
    (finding,) = ran.document["findings"]
    assert (finding["subject"], "SIGKILL" in finding["found"]) == ("the launcher", True)
    pids = [int((tmp_path / f"rank{rank}").read_text()) for rank in (0, 1)]
    assert not [pid for pid in pids if psutil.pid_exists(pid) and psutil.Process(pid).status() != "zombie"]


def test_a_scripted_module_is_watched(tmp_path, forks):
    """TorchScript keeps the buffers of a module in a table that is no dict."""
    path = script(
        tmp_path,
        """
        dist.init_process_group("gloo")
        net = torch.jit.script(nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Linear(4, 1)))
        model = DistributedDataParallel(net)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        step(model, optimizer)
        model.eval()
        with torch.no_grad():
            net(torch.ones(8, 4))
        dist.destroy_process_group()
        """,
    )
    ran = run(tmp_path, "--nproc-per-node", "2", path, "--checks", "gradient-sync,buffer-sync", forks=forks)
    assert (ran.code, ran.document["verdict"]) == (0, "held"), ran.err
    assert ran.document["checks"]["gradient-sync"]["checked"] == 1
    assert ran.document["checks"]["buffer-sync"]["checked"] > 0
