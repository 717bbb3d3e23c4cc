"""A mistake in a training with a library is reported with the library's own fix; a right one has no error."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from tests import progress

PROGRAMS = Path(__file__).parents[2] / "fixtures" / "library_mistakes"

MISTAKES = [
    ("accelerate", "loader", "shard-partition", "accelerator.prepare(loader)"),
    ("accelerate", "scheduler", "optimizer-sync", "step_scheduler_with_optimizer=False"),
    ("accelerate", "save", "checkpoint-single-writer", "accelerator.save(state, path)"),
    ("accelerate", "evaluation", "no-hang", "accelerator.is_main_process"),
    ("accelerate", "group", "process-hygiene", "accelerator.end_training()"),
    ("accelerate", "clip", "gradient-sync", "accelerator.clip_grad_norm_("),
    ("transformers", "loader", "shard-partition", "self.accelerator.prepare(loader)"),
    ("transformers", "wrapper", "reducer-coverage", "`model` that it is given"),
    ("transformers", "save", "checkpoint-single-writer", "trainer.save_model(path)"),
    ("transformers", "evaluation", "no-hang", "trainer.is_world_process_zero()"),
    ("transformers", "group", "process-hygiene", "trainer.accelerator.end_training()"),
    ("torchmetrics", "metric", "no-hang", "compute() gathers the states of all"),
    ("torchmetrics", "checkpoint", "no-hang", "torch.distributed.checkpoint on every rank"),
    ("lightning", "sampler", "shard-partition", "use_distributed_sampler=True"),
    ("lightning", "log", "no-hang", "self.log(..., sync_dist=True)"),
    ("lightning", "seed", "rng-independence", "seed + self.global_rank"),
]


def told(tmp_path, library, *arguments):
    pytest.importorskip(library)
    document = tmp_path / "verdict.json"
    progress.run(
        [sys.executable, "-m", "ddpcheck.cli", "run", "--standalone", "--nproc-per-node=2", f"--json={document}",
         PROGRAMS / f"{library}_training.py", *arguments],
        cwd=tmp_path,
    )  # fmt: skip
    return json.loads(document.read_text())


@pytest.mark.parametrize(("library", "mistake", "check", "fix"), MISTAKES)
def test_the_fix_is_the_librarys(tmp_path, library, mistake, check, fix):
    findings = told(tmp_path, library, mistake)["findings"]
    assert [f["advice"] for f in findings if f["check"] == check and fix in f["advice"]], findings


@pytest.mark.parametrize("library", ["accelerate", "lightning", "transformers", "torchmetrics"])
def test_a_right_training(tmp_path, library):
    found = told(tmp_path, library)
    assert found["internal"] == []
    fixes = [fix for _, _, check, fix in MISTAKES if check != "process-hygiene"]
    assert [f for f in found["findings"] if any(fix in f["advice"] for fix in fixes)] == []
