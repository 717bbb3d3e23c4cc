"""docs/conformance.md: its library and its adapter do what it shows, and its tables are those of the code."""

from __future__ import annotations

import re

import pytest

from tests.conformance.page import PAGE, renewed
from tests.inner import InnerProject

TEXT = PAGE.read_text()
LIBRARY, ADAPTER, FIX, SHARDING, SHARDING_ADAPTER = re.findall(r"```python\n(.*?)```", TEXT, flags=re.DOTALL)[:5]
FAILURES = re.findall(r"```\n(_+ test_trainer\[.*?)```", TEXT, flags=re.DOTALL)
BACKWARD = "                loss = self.loss(self.model(inputs), targets)\n"


def test_the_tables_are_those_of_the_code() -> None:
    """`python -m tests.conformance.page` writes them."""
    assert renewed(TEXT) == TEXT


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> InnerProject:
    """The page's library in three states: as it is, divided by all that is accumulated, and fixed."""
    made = InnerProject(tmp_path_factory.mktemp("page") / "project")
    assert LIBRARY.count(BACKWARD) == 1
    divided = BACKWARD.rstrip() + " / self.accumulate\n"
    for name, loss in (("minitrain", BACKWARD), ("divided", divided), ("fixed", FIX)):
        made.write(f"{name}.py", LIBRARY.replace(BACKWARD, loss))
        adapter = ADAPTER.replace("from minitrain", f"from {name}").replace("def test_trainer", f"def test_{name}")
        made.write(f"test_{name}.py", adapter)
    return made


@pytest.mark.long
def test_the_page_shows_what_happens(project: InnerProject) -> None:
    """The text of each failure is what the items say, and the fixed library holds."""
    ran = project.run("-k", "gradient-oracle:accumulation and 2ranks and not clipping")
    whole, tail = "[gradient-oracle:accumulation-2ranks]", "[gradient-oracle:accumulation-tail-2ranks]"
    assert {name: seen.outcome for name, seen in ran.tests.items()} == {
        f"test_minitrain{whole}": "failed",
        f"test_minitrain{tail}": "failed",
        f"test_divided{whole}": "passed",
        f"test_divided{tail}": "failed",
        f"test_fixed{whole}": "passed",
        f"test_fixed{tail}": "passed",
    }
    for shown, name in zip(FAILURES, (f"test_minitrain{whole}", f"test_divided{tail}"), strict=True):
        for line in shown.splitlines()[1:]:
            assert line in ran[name].text


@pytest.mark.long
def test_the_library_that_shards(tmp_path_factory: pytest.TempPathFactory) -> None:
    """It holds as it is shown, and fails where the page says that it does."""
    if not hasattr(pytest.importorskip("torch.distributed.fsdp"), "fully_shard"):
        pytest.skip("torch 2.6 and later have fully_shard")
    made = InnerProject(tmp_path_factory.mktemp("sharding") / "project")
    made.write("minitrain.py", LIBRARY.replace(BACKWARD, FIX))
    made.write("test_conformance.py", ADAPTER)
    made.write("shardtrain.py", SHARDING)
    made.write("test_sharding.py", SHARDING_ADAPTER)
    assert SHARDING_ADAPTER.count("job.mesh,") == 1
    apart = SHARDING_ADAPTER.replace("job.mesh,", 'job.mesh["shard"],').replace("def test_sharded", "def test_apart")
    made.write("test_apart.py", apart)
    ran = made.run("-k", "(sharded and (hsdp or fsdp2-2ranks)) or (apart and gradient-sync:hsdp)")
    outcomes = {name: seen.outcome for name, seen in ran.tests.items()}
    resumes = [name for name in outcomes if "resume" in name]
    assert {outcomes.pop(name) for name in resumes} == {"skipped"}
    assert outcomes.pop("test_apart[gradient-sync:hsdp-4ranks]") == "failed"
    assert set(outcomes.values()) == {"passed"}, {name: ran[name].text for name in outcomes}
    assert len(outcomes) == 5
