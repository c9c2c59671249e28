"""Free memory of the system and the container, and the memory limit of the process."""

import gc
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy import sparse

from plogicnet import PLogicNet
from plogicnet.config import Config
from plogicnet.evaluation.batches import batch_size
from plogicnet.evaluation.scaling import sparse_design
from plogicnet.graph import MISSING, FloatArray, KnowledgeGraph
from plogicnet.grounding.engine import CountingMode, Resources
from plogicnet.grounding.native import grounding, mining
from plogicnet.grounding.native.walks import Chain
from plogicnet.inference import output, prediction
from plogicnet.inference.fitted import PredictionBatch
from plogicnet.support import memory
from plogicnet.support.errors import InputError
from plogicnet.support.memory import limit_memory, parse_size, require_bytes
from reference import graphs_and_chains
from small import fitted


@pytest.fixture(autouse=True)
def _no_limit() -> Iterator[None]:
    yield
    limit_memory(None)


@pytest.fixture(scope="module")
def family() -> PLogicNet:
    return fitted()


def test_free_bytes_respects_the_limit_of_the_container(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    limit, used = tmp_path / "max", tmp_path / "current"
    monkeypatch.setattr(memory, "CGROUP_FILES", [(limit, used)])
    unlimited = memory.free_bytes()
    limit.write_text(f"{10**9}\n")
    used.write_text(f"{10**9 - 2**27}\n")
    assert memory.free_bytes() == min(unlimited, 2**27)
    limit.write_text("max\n")
    assert memory.free_bytes() > unlimited // 2


def test_a_memory_setting_overrides_the_share_of_free_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "_unused_bytes", lambda: 1000)
    assert memory.allowed_bytes(3) == 3 * 2**20
    assert memory.allowed_bytes(0) == 500


@pytest.mark.parametrize(
    ("text", "size"),
    [("2GB", 2**31), ("2g", 2**31), ("1.5GiB", 3 * 2**29), (" 500 MB ", 500 * 2**20), ("64kb", 2**16), ("1TB", 2**40)],
)
def test_parse_size(text: str, size: int) -> None:
    assert parse_size(text) == size


@pytest.mark.parametrize(
    "text", ["", "2", "2000", "GB", "-1GB", "0MB", "1e3MB", "2 PB", "2GBs", "٣GB", "9" * 400 + "GB"]
)
def test_an_invalid_size_raises(text: str) -> None:
    with pytest.raises(InputError, match="such as 2GB"):
        limit_memory(text)


def test_remaining_bytes_is_the_limit_minus_the_memory_in_use() -> None:
    assert memory.remaining_bytes() == memory.NO_LIMIT
    limit_memory("100TB")
    before = memory.remaining_bytes()
    assert before < 100 * 2**40
    assert memory.free_bytes() <= before
    array = np.ones(2**24)  # 128 MB
    assert before - memory.remaining_bytes() > 100 * 2**20
    del array
    assert before - memory.remaining_bytes() < 60 * 2**20  # returned to the system


def test_a_limit_below_the_memory_in_use_leaves_nothing() -> None:
    limit_memory("1MB")
    assert memory.remaining_bytes() < 0
    assert memory.free_bytes() == 0
    assert memory.engine_mb(100) == 1
    assert batch_size(1000, torch.device("cpu")) == 1
    assert batch_size(1000, torch.device("cpu"), batch_memory_mb=100) == 1
    with pytest.raises(InputError, match=r"vectors: the memory limit is 1 MB, .* Raise --memory-limit to .*, or wait"):
        require_bytes(0, "vectors", "wait")


def test_the_limit_overrides_memory_settings() -> None:
    gc.collect()
    limit_memory("100TB")
    used = 100 * 2**40 - memory.remaining_bytes()  # also returns freed memory to the system
    limit_memory(used + 64 * 2**20)
    assert memory.engine_mb(1000) <= 40
    assert batch_size(2**20, torch.device("cpu"), batch_memory_mb=1000) <= 20
    with pytest.raises(InputError, match="about 1,024 MB more"):
        require_bytes(1000 * 2**20, "a large array")


def test_the_suggested_memory_limit_is_sufficient() -> None:
    limit_memory("1MB")
    with pytest.raises(InputError) as raised:
        require_bytes(300 * 2**20, "vectors")
    suggested = str(raised.value).partition("at least ")[2]
    limit_memory(suggested)
    require_bytes(300 * 2**20, "vectors")


@settings(max_examples=30, deadline=None)
@given(st.lists(st.tuples(*[st.integers(0, 5)] * 3), min_size=1, max_size=60), st.integers(0, 2**13))
def test_mining_does_not_depend_on_free_memory(rows: list[tuple[int, int, int]], free: int) -> None:
    graph = KnowledgeGraph.from_names([(f"e{h}", f"r{r}", f"e{t}") for h, r, t in rows])
    rules = Config().with_assignments(["rules.min_precision.composition=0"]).rules
    expected = mining.mine(graph, rules, Resources(threads=2))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(mining, "free_bytes", lambda: free)
        limited = mining.mine(graph, rules, Resources(threads=2))
    assert limited.n_candidates == expected.n_candidates
    assert limited.rules.rows() == expected.rules.rows()


@given(st.integers(1, 64), st.integers(0, 100), st.integers(1, 2**30), st.integers(0, 2**40))
def test_threads_fit_into_free_memory(threads: int, tasks: int, each: int, free: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(mining, "free_bytes", lambda: free)
        used = mining._plan_threads(threads, tasks, each)
    assert 1 <= used <= max(1, min(threads, tasks))
    assert used * each <= free // 2 or used == 1


@settings(max_examples=30, deadline=None)
@given(graphs_and_chains(max_entities=4), st.integers(1, 9), st.booleans(), st.sampled_from(["distinct", "paths"]))
def test_grounding_does_not_depend_on_the_chunk_size(
    case: tuple[KnowledgeGraph, list[Chain]], at_once: int, linked: bool, counting: CountingMode
) -> None:
    graph, chains = case
    whole = grounding.ground_network(graph.observed, chains, counting, linked)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(grounding, "CHUNK_GROUNDINGS", at_once)
        pieces = grounding.ground_network(graph.observed, chains, counting, linked)
    assert pieces.triples.keys.tolist() == whole.triples.keys.tolist()
    for name in ("observed", "rule", "hypothesis", "premises"):
        assert getattr(pieces, name).tolist() == getattr(whole, name).tolist()


@given(arrays(np.float64, st.tuples(st.integers(0, 9), st.just(4)), elements=st.sampled_from([0.0, -0.0, 1.0, 0.5])))
def test_sparse_design_equals_the_matrix_of_scipy(design: FloatArray) -> None:
    ours, theirs = sparse_design(design), sparse.csr_array(design)
    for name in ("data", "indices", "indptr"):
        assert getattr(ours, name).tolist() == getattr(theirs, name).tolist()


@pytest.mark.parametrize("at_once", [1, 7, 200])
def test_predictions_do_not_depend_on_free_memory(
    family: PLogicNet, at_once: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    f = family.fitted
    queries = np.where([False, False, True], MISSING, f.graph.test[:20])

    def everything() -> list[object]:
        answered = [(q.tolist(), j.triples.tolist()) for q, j in prediction.iter_answers(f, queries)]
        found = PredictionBatch.concat(list(prediction.iter_missing(f, lambda: 0.01)))
        return [
            [q for part, _ in answered for q in part],
            [t for _, part in answered for t in part],
            found.triples.tolist(),
            found.probability.tolist(),
            prediction.complete(f, 0.01, top=5).triples.tolist(),
        ]

    whole = everything()
    monkeypatch.setattr(memory, "free_bytes", lambda: 2 * prediction.CANDIDATE_BYTES * at_once)
    assert everything() == whole


@pytest.mark.parametrize("at_once", [1, 5, 1000])
def test_a_table_file_does_not_depend_on_the_chunk_size(
    at_once: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(output, "ROW_GROUP", 7)
    graph = KnowledgeGraph.from_names([(f"e{i}", "next", f"e{i + 1}") for i in range(31)])
    files = tmp_path / "whole.parquet", tmp_path / "pieces.parquet"
    for file, step in zip(files, (31, at_once), strict=True):
        with output.open_table_writer(file, tuple(output.TRIPLE)) as write:
            for at in range(0, 31, step):
                write(output.triple_table(graph, graph.train[at : at + step]))
    assert files[0].read_bytes() == files[1].read_bytes()
    assert pq.read_table(files[1]).num_rows == 31
    assert [pq.ParquetFile(files[1]).metadata.row_group(i).num_rows for i in range(5)] == [7, 7, 7, 7, 3]
