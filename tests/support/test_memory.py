"""Free memory as system and container tell it, and a limit for the process."""

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
from plogicnet.graph import OPEN, FloatArray, KnowledgeGraph
from plogicnet.grounding.engine import Counting, Resources
from plogicnet.grounding.native import grounding, mining
from plogicnet.grounding.native.walks import Chain
from plogicnet.inference import output, prediction
from plogicnet.inference.fitted import Judged
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


def test_a_containers_limit_is_seen(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    most, used = tmp_path / "max", tmp_path / "current"
    monkeypatch.setattr(memory, "LIMITS", [(most, used)])
    whole = memory.free_bytes()
    most.write_text(f"{10**9}\n")
    used.write_text(f"{10**9 - 2**27}\n")
    assert memory.free_bytes() == min(whole, 2**27)
    most.write_text("max\n")
    assert memory.free_bytes() > whole // 2


def test_a_setting_stands_above_what_is_free(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "_unused_bytes", lambda: 1000)
    assert memory.allowed_bytes(3) == 3 * 2**20
    assert memory.allowed_bytes(0) == 500


@pytest.mark.parametrize(
    ("text", "size"),
    [("2GB", 2**31), ("2g", 2**31), ("1.5GiB", 3 * 2**29), (" 500 MB ", 500 * 2**20), ("64kb", 2**16), ("1TB", 2**40)],
)
def test_sizes(text: str, size: int) -> None:
    assert parse_size(text) == size


@pytest.mark.parametrize(
    "text", ["", "2", "2000", "GB", "-1GB", "0MB", "1e3MB", "2 PB", "2GBs", "٣GB", "9" * 400 + "GB"]
)
def test_what_is_no_size_is_refused(text: str) -> None:
    with pytest.raises(InputError, match="as 2GB"):
        limit_memory(text)


def test_what_is_left_is_the_limit_less_what_is_held() -> None:
    assert memory.left_bytes() == memory.NO_LIMIT
    limit_memory("100TB")
    before = memory.left_bytes()
    assert before < 100 * 2**40
    assert memory.free_bytes() <= before
    held = np.ones(2**24)  # 128 MB
    assert before - memory.left_bytes() > 100 * 2**20
    del held
    assert before - memory.left_bytes() < 60 * 2**20  # handed back


def test_nothing_is_left_below_what_the_program_holds() -> None:
    limit_memory("1MB")
    assert memory.left_bytes() < 0
    assert memory.free_bytes() == 0
    assert memory.engine_mb(100) == 1
    assert batch_size(1000, torch.device("cpu")) == 1
    assert batch_size(1000, torch.device("cpu"), batch_memory_mb=100) == 1
    with pytest.raises(InputError, match=r"vectors: the memory limit is 1 MB, .* Raise --memory-limit to .*; or wait"):
        require_bytes(0, "vectors", "wait")


def test_settings_stand_below_the_limit() -> None:
    gc.collect()
    limit_memory("100TB")
    held = 100 * 2**40 - memory.left_bytes()  # after what was freed before is handed back
    limit_memory(held + 64 * 2**20)
    assert memory.engine_mb(1000) <= 40
    assert batch_size(2**20, torch.device("cpu"), batch_memory_mb=1000) <= 20
    with pytest.raises(InputError, match="about 1,024 MB more"):
        require_bytes(1000 * 2**20, "a thousand")


def test_what_is_said_to_suffice_suffices() -> None:
    limit_memory("1MB")
    with pytest.raises(InputError) as refused:
        require_bytes(300 * 2**20, "vectors")
    enough = str(refused.value).partition("at least ")[2]
    limit_memory(enough)
    require_bytes(300 * 2**20, "vectors")


@settings(max_examples=30, deadline=None)
@given(st.lists(st.tuples(*[st.integers(0, 5)] * 3), min_size=1, max_size=60), st.integers(0, 2**13))
def test_mining_is_the_same_in_any_memory(rows: list[tuple[int, int, int]], free: int) -> None:
    graph = KnowledgeGraph.from_names([(f"e{h}", f"r{r}", f"e{t}") for h, r, t in rows])
    every = Config().with_assignments(["rules.min_precision.composition=0"]).rules
    whole = mining.mine(graph, every, Resources(threads=2))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(mining, "free_bytes", lambda: free)
        tight = mining.mine(graph, every, Resources(threads=2))
    assert tight.candidates == whole.candidates
    assert tight.rules.rows() == whole.rules.rows()


@given(st.integers(1, 64), st.integers(1, 3000), st.integers(0, 2**30), st.integers(0, 2**40))
def test_workspaces_fit(threads: int, relations: int, each: int, free: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(mining, "free_bytes", lambda: free)
        used, counters = mining._workspaces(threads, relations, each)
    assert 1 <= used <= threads
    assert relations <= max(counters, relations) <= max(mining.COUNTERS, relations)
    assert used * (each + 8 * counters) <= free // 2 or (used == 1 and counters == relations)


@settings(max_examples=30, deadline=None)
@given(graphs_and_chains(max_entities=4), st.integers(1, 9), st.booleans(), st.sampled_from(["distinct", "paths"]))
def test_groundings_are_the_same_in_any_pieces(
    case: tuple[KnowledgeGraph, list[Chain]], at_once: int, linked: bool, counting: Counting
) -> None:
    graph, chains = case
    whole = grounding.ground_network(graph.observed, chains, counting, linked)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(grounding, "AT_ONCE", at_once)
        pieces = grounding.ground_network(graph.observed, chains, counting, linked)
    assert pieces.triples.keys.tolist() == whole.triples.keys.tolist()
    for name in ("observed", "rule", "hypothesis", "premises"):
        assert getattr(pieces, name).tolist() == getattr(whole, name).tolist()


@given(arrays(np.float64, st.tuples(st.integers(0, 9), st.just(4)), elements=st.sampled_from([0.0, -0.0, 1.0, 0.5])))
def test_a_narrow_matrix_is_as_scipy_makes_it(design: FloatArray) -> None:
    ours, theirs = sparse_design(design), sparse.csr_array(design)
    for name in ("data", "indices", "indptr"):
        assert getattr(ours, name).tolist() == getattr(theirs, name).tolist()


@pytest.mark.parametrize("at_once", [1, 7, 200])
def test_answers_and_completions_are_the_same_in_any_memory(
    family: PLogicNet, at_once: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    f = family.fitted
    queries = np.where([False, False, True], OPEN, f.graph.test[:20])

    def everything() -> list[object]:
        answered = [(q.tolist(), j.triples.tolist()) for q, j in prediction.answers(f, queries)]
        found = Judged.joined(list(prediction.completions(f, lambda: 0.01)))
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
def test_a_file_is_the_same_in_whatever_pieces_it_comes(
    at_once: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(output, "ROW_GROUP", 7)
    graph = KnowledgeGraph.from_names([(f"e{i}", "next", f"e{i + 1}") for i in range(31)])
    files = tmp_path / "whole.parquet", tmp_path / "pieces.parquet"
    for file, step in zip(files, (31, at_once), strict=True):
        with output.writing(file, tuple(output.TRIPLE)) as write:
            for at in range(0, 31, step):
                write(output.triples_of(graph, graph.train[at : at + step]))
    assert files[0].read_bytes() == files[1].read_bytes()
    assert pq.read_table(files[1]).num_rows == 31
    assert [pq.ParquetFile(files[1]).metadata.row_group(i).num_rows for i in range(5)] == [7, 7, 7, 7, 3]
