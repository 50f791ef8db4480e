"""Steps of datatrove keep and remove what `unmask prepare` does."""

import gzip
import json
import subprocess
import sys
from pathlib import Path

import pytest
from test_clean import ALL, corpus

pytest.importorskip("datatrove")

from datatrove.executor import LocalPipelineExecutor
from datatrove.pipeline.readers import JsonlReader
from datatrove.pipeline.writers import JsonlWriter

from unmask.jobs.corpus.clean import clean_corpus, read_cleaned
from unmask.jobs.corpus.datatrove_steps import (
    CleaningFilter,
    DuplicateFilter,
    DuplicateKeys,
    DuplicateSearch,
)
from unmask.text.documents import Document


def write_files(folder: Path) -> list[Document]:
    """Write documents to three files; one has nothing that is left."""
    documents = list(corpus())
    menus = [Document("Home\n\nCart", "menu")] * 3
    folder.mkdir()
    for i, some in enumerate((documents[:30], menus, documents[30:])):
        rows = [json.dumps({"text": d.text, "id": f"{i}-{j}"}) for j, d in enumerate(some)]
        (folder / f"{i}.jsonl").write_text("\n".join(rows) + "\n")
    return documents[:30] + menus + documents[30:]


def written(folder: Path) -> list[str]:
    texts: list[str] = []
    for path in sorted(folder.glob("*.jsonl.gz")):
        with gzip.open(path, "rt") as file:
            texts += [json.loads(line)["text"] for line in file]
    return texts


def pipelines(folder: Path) -> list[tuple[list, int]]:
    return [
        (
            [
                JsonlReader(str(folder / "in")), CleaningFilter(ALL),
                DuplicateKeys(ALL, str(folder / "keys")), JsonlWriter(str(folder / "cleaned")),
            ],
            3,
        ),
        ([DuplicateSearch(ALL, str(folder / "keys"))], 1),
        (
            [
                JsonlReader(str(folder / "cleaned")), DuplicateFilter(str(folder / "keys")),
                JsonlWriter(str(folder / "out")),
            ],
            3,
        ),
    ]  # fmt: skip


def check_equal(folder: Path, documents: list[Document]) -> None:
    as_read = [Document(d.text.replace("\n\n", "\n"), d.location) for d in documents]
    clean_corpus(as_read, ALL, folder / "ours", made_from={})
    kept = [d.text for d in read_cleaned(folder / "ours")]
    assert written(folder / "out") == kept
    assert 0 < len(kept) < len(documents)


def test_local_executor_makes_the_same_decisions(tmp_path: Path) -> None:
    documents = write_files(tmp_path / "in")
    for i, (steps, tasks) in enumerate(pipelines(tmp_path)):
        LocalPipelineExecutor(
            steps, tasks=tasks, workers=1, logging_dir=str(tmp_path / f"logs-{i}")
        ).run()
    check_equal(tmp_path, documents)


def test_steps_that_are_missing_are_named(tmp_path: Path) -> None:
    from datatrove.data import Document as TheirDocument

    with pytest.raises(ValueError, match="run DuplicateKeys first"):
        list(DuplicateSearch(ALL, str(tmp_path / "keys")).run())
    with pytest.raises(ValueError, match="must be one task, got 2"):
        list(DuplicateSearch(ALL, str(tmp_path / "keys")).run(world_size=2))
    with pytest.raises(ValueError, match="x: has no unmask_position"):
        DuplicateFilter(str(tmp_path / "keys")).filter(TheirDocument("a", "x"))


TEST_FOLDERS = (str(Path(__file__).parent), str(Path(__file__).parents[2]))
RAY = """
import sys
from pathlib import Path
import ray
from datatrove.executor.ray import RayPipelineExecutor
sys.path += sys.argv[2:]
from test_datatrove_steps import pipelines
ray.init(num_cpus=2, include_dashboard=False, object_store_memory=10**8)
for i, (steps, tasks) in enumerate(pipelines(Path(sys.argv[1]))):
    RayPipelineExecutor(
        steps, tasks=tasks, workers=2, cpus_per_task=1, mem_per_cpu_gb=0.1,
        logging_dir=f"{sys.argv[1]}/logs-{i}",
    ).run()
ray.shutdown()
"""


@pytest.mark.thorough
def test_ray_executor_makes_the_same_decisions(tmp_path: Path) -> None:
    pytest.importorskip("ray")
    documents = write_files(tmp_path / "in")
    done = subprocess.run(
        [sys.executable, "-c", RAY, str(tmp_path), *TEST_FOLDERS],
        capture_output=True,
        text=True,
        timeout=400,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    check_equal(tmp_path, documents)
