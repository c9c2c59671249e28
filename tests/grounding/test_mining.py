"""Native mining: thresholds, shapes, hubs, and the counts of the authors' program. See also the contract."""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import plogicnet
from plogicnet import config
from plogicnet.config.shapes import CHAIN_SHAPES
from plogicnet.graph import IntArray, KnowledgeGraph, Vocabulary, as_triples, open_graph
from plogicnet.grounding.engine import CountingMode, GroundingTask, Resources
from plogicnet.grounding.grounder import Grounder
from plogicnet.grounding.mining import mine_constraints
from plogicnet.grounding.native import mining, triangles
from plogicnet.grounding.native.engine import NATIVE
from plogicnet.grounding.native.mining import mine
from plogicnet.grounding.native.walks import chain_of, two_step_paths
from plogicnet.support.errors import InputError
from plogicnet.support.progress import Advance
from reference import COUNTINGS, Triple, as_set, candidates, graphs, numbered_graph, paths

ALL = config.MinPrecision(0, 0, 0, 0)
THRESHOLDS = [0.0, 0.1, 0.25, 1 / 3, 0.5, 0.6, 2 / 3, 1.0]


@settings(max_examples=60, deadline=None)
@given(graphs(max_entities=3), st.sampled_from([0.0, 0.5, 0.75, 0.99, 1.0]))
def test_constraints_as_by_counting(graph: KnowledgeGraph, min_precision: float) -> None:
    rule_settings = config.Rules(min_precision=config.MinPrecision(irreflexive=min_precision))
    table = mine_constraints(graph, rule_settings)
    expected = []
    for number, name in enumerate(graph.relations.names):
        facts = [(h, t) for h, r, t in as_set(graph.train) if r == number]
        n_without_loops = sum(h != t for h, t in facts)
        if facts and n_without_loops / len(facts) >= min_precision:
            expected.append((f"=> not {name}(X, X)", len(facts), n_without_loops))
    assert list(zip(map(str, table.rules), table.support.tolist(), table.hits.tolist(), strict=True)) == expected
    assert not table.rules or set(table.patterns) == {"irreflexive"}
    assert mine(graph, rule_settings).constraints.rules == table.rules
    assert len(mine_constraints(graph, replace(rule_settings, irreflexive=False))) == 0


@pytest.mark.parametrize("counting", COUNTINGS)
def test_a_self_loop_supports_rules_only_when_counting_paths(counting: CountingMode) -> None:
    """r(a, a) is the inverse of itself and the composition with itself."""
    mined = mine(numbered_graph(2, 1, [(0, 0, 0)]), config.Rules(counting=counting, min_precision=ALL))
    assert mined.rules.counts() == {
        "composition": int(counting == "paths"),
        "inverse": 0,
        "symmetric": int(counting == "paths"),
        "subrelation": 0,
    }


def test_a_precision_at_the_threshold_is_kept() -> None:
    """3 / 30 is not below 0.1 after rounding."""
    train = [(i, 0, i + 1) for i in range(0, 60, 2)] + [(i + 1, 1, i) for i in range(0, 6, 2)]
    mined = mine(numbered_graph(60, 2, train), config.Rules())
    assert [(str(r), n) for r, n in zip(mined.rules.rules, mined.rules.support, strict=True)] == [
        ("r0(X, Y) => r1(Y, X)", 30),
        ("r1(X, Y) => r0(Y, X)", 3),
    ]


@pytest.mark.parametrize(
    ("name", "min_precision", "candidates", "rules", "hidden", "groundings"),
    [
        (
            "wn18rr",
            0.1,
            165,
            {"composition": 15, "inverse": 0, "symmetric": 4, "subrelation": 0},
            12_050,
            None,
        ),
        (
            "fb15k-237",
            0.6,
            9_678,
            {"composition": 819, "inverse": 29, "symmetric": 27, "subrelation": 44},
            32_797,
            342_183,
        ),
    ],
)
def test_counts_equal_those_of_the_authors_program(
    name: str, min_precision: float, candidates: int, rules: dict[str, int], hidden: int, groundings: int | None
) -> None:
    """With the same threshold for all patterns."""
    root = os.environ.get("PLOGICNET_DATA")
    if not root or not (Path(root) / name).is_dir():
        pytest.skip(f"PLOGICNET_DATA is not set to a directory that contains {name}")
    graph = open_graph(name)
    thresholds = config.MinPrecision(min_precision, min_precision, min_precision, min_precision)
    mined = mine(graph, config.Rules(min_precision=thresholds, counting="paths"))
    network = NATIVE.ground(GroundingTask(graph, mined.rules.rules, "paths"))
    assert (mined.n_candidates, mined.rules.counts(), len(network.hidden)) == (candidates, rules, hidden)
    assert groundings is None or network.size == groundings


@st.composite
def hub_graphs(draw: st.DrawFn) -> KnowledgeGraph:
    """Draw a graph with two hubs, self-loops, parallel facts and other facts."""
    relations = draw(st.integers(1, 4))
    entity, relation = st.integers(0, 9), st.integers(0, relations - 1)
    facts: list[Triple] = draw(st.lists(st.tuples(entity, relation, entity), max_size=20))
    for hub in (0, 1):
        facts += [(e, draw(relation), hub) for e in draw(st.sets(entity))]
        facts += [(hub, draw(relation), e) for e in draw(st.sets(entity))]
    for e in draw(st.sets(entity, max_size=3)):
        facts.append((e, draw(relation), e))
    facts += [(h, draw(relation), t) for h, _, t in draw(st.permutations(facts))[:8]]
    return numbered_graph(10, relations, facts or [(0, 0, 1)])


@settings(max_examples=200, deadline=None)
@given(
    hub_graphs(),
    st.sampled_from(COUNTINGS),
    st.sampled_from(THRESHOLDS),
    st.sampled_from([1, 1, 2, 5, 20]),
    st.sampled_from([1, 30, mining.CHUNK_STEPS]),
    st.sampled_from([1, 4, triangles.FIRST_ROWS]),
)
def test_compositions_as_by_joins(
    graph: KnowledgeGraph,
    counting: CountingMode,
    min_precision: float,
    min_support: int,
    chunk_steps: int,
    first_rows: int,
) -> None:
    """With any number of threads, size of the chunks, and size of the tables of counters."""
    rule_settings = config.Rules(
        patterns=("composition",),
        min_precision=config.MinPrecision(composition=min_precision),
        min_support=min_support,
        counting=counting,
    )
    facts = as_set(graph.train)
    counts = {c: n for c, n in candidates(facts, paths(facts), counting).items() if len(c.steps) == 2}
    expected = sorted(
        (*(step.relation for step in chain.steps), chain.relation, support, hits)
        for chain, (support, hits) in counts.items()
        if hits / support >= min_precision and support >= min_support
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(mining, "CHUNK_STEPS", chunk_steps)
        patch.setattr(triangles, "FIRST_ROWS", first_rows)
        mined = [mine(graph, rule_settings, Resources(threads=threads)) for threads in (1, 2)]
    for result in mined:
        chains = [chain_of(rule, graph.relations) for rule in result.rules.rules]
        columns = zip(chains, result.rules.support.tolist(), result.rules.hits.tolist(), strict=True)
        assert [(*(step.relation for step in chain.steps), chain.relation, *n) for chain, *n in columns] == expected
        assert result.n_candidates == len(counts)


@pytest.mark.parametrize("small", [[], [49], [50], [49, 50], [48, 49, 50, 51]])
def test_pairs_through_a_hub_and_a_smaller_middle_entity_are_counted_once(small: list[int]) -> None:
    """The hub 1 leads to 2, …, 49. It has so many tails that those of the other middle entity are looked up in them."""
    train = [(0, 0, 1), (0, 0, 60), (0, 2, 2), *((1, 1, t) for t in range(2, 50)), *((60, 1, t) for t in small)]
    rules = mine(numbered_graph(61, 3, train), config.Rules(min_precision=ALL)).rules
    assert [str(rule) for rule in rules.rules] == ["r0(X, Y) & r1(Y, Z) => r2(X, Z)"]
    assert rules.support.tolist() == [len({*range(2, 50), *small})]


@settings(max_examples=100, deadline=None)
@given(st.integers(1, 40), st.integers(0, 40), st.sampled_from(COUNTINGS))
def test_a_composition_exactly_at_the_threshold_is_kept(hits: int, others: int, counting: CountingMode) -> None:
    """All paths lead through one entity, so the lower bound of the support is the support."""
    support = hits + others
    tails = range(2, 2 + support)
    train = [(0, 0, 1), *((1, 1, t) for t in tails), *((0, 2, t) for t in tails[:hits])]
    graph, precision = numbered_graph(2 + support, 3, train), hits / support
    for threshold, kept in ((precision, True), (np.nextafter(precision, 2), False)):
        for min_support in (support, support + 1):
            rule_settings = config.Rules(
                patterns=("composition",),
                min_precision=config.MinPrecision(composition=threshold),
                min_support=min_support,
                counting=counting,
            )
            mined = mine(graph, rule_settings)
            rows = [(support, hits)] if kept and min_support == support else []
            assert list(zip(mined.rules.support.tolist(), mined.rules.hits.tolist(), strict=True)) == rows
            assert mined.n_candidates == 1


def test_counters_that_do_not_fit_into_memory_raise_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mining, "MIN_TABLE_BYTES", 1)
    monkeypatch.setattr(mining, "free_bytes", lambda: 0)
    with pytest.raises(InputError, match="their counters do not fit into memory"):
        mine(numbered_graph(3, 1, [(0, 0, 1), (1, 0, 2), (0, 0, 2)]), config.Rules())


def test_hubs_that_cannot_matter_are_not_walked() -> None:
    """Only a(X, Y) & d(Y, Z) => e(X, Z) is walked. The 1.2 billion paths of a(X, Y) & b(Y, Z) have too few hits."""
    n, hubs = 20_000, 3
    spokes, rim, hub = np.arange(n), n + np.arange(n), 2 * n + np.arange(hubs)
    end = np.array([2 * n + hubs])

    def facts(heads: IntArray, relation: int, tails: IntArray) -> IntArray:
        return np.column_stack([heads, np.full(len(heads), relation), tails])

    into, out = facts(np.tile(spokes, hubs), 0, np.repeat(hub, n)), facts(np.repeat(hub, n), 1, np.tile(rim, hubs))
    some, on, over = facts(spokes, 2, rim), facts(hub, 3, end.repeat(hubs)), facts(spokes, 4, end.repeat(n))
    triples = [as_triples(np.concatenate([into, out, some, on, over])), as_triples([]), as_triples([])]
    entities = Vocabulary("entity", tuple(map(str, range(2 * n + hubs + 1))))
    graph = KnowledgeGraph.from_ids(entities, Vocabulary("relation", tuple("abcde")), triples, "hubs")
    steps: dict[str, int] = {}

    @contextmanager
    def progress(step: str, total: int) -> Iterator[Advance]:
        steps[step] = total
        yield lambda units=1, note="": None  # noqa: ARG005

    mined = mine(graph, config.Rules(), Resources(progress=progress))
    rows = zip(map(str, mined.rules.rules), mined.rules.support.tolist(), mined.rules.hits.tolist(), strict=True)
    assert list(rows) == [("a(X, Y) & d(Y, Z) => e(X, Z)", n, n)]
    assert mined.n_candidates == 2
    assert two_step_paths(graph.observed, 5).sum() == hubs * n * (n + 1)
    assert steps["mining hits, neighbours"] < 50 * n
    assert steps["mining support, two-step paths"] == hubs * n


def test_a_hub_is_counted_without_walking_every_path() -> None:
    """The counts of 10 billion two-step paths are exact, and grounding them raises InputError."""
    n = 100_000
    spokes, rim, hub = np.arange(n), n + np.arange(n), np.full(n, 2 * n)
    known = np.column_stack([spokes, np.full(n, 2), np.random.default_rng(0).permutation(rim)])
    into, out = np.column_stack([spokes, np.zeros(n), hub]), np.column_stack([hub, np.ones(n), rim])
    entities = Vocabulary("entity", tuple(map(str, range(2 * n + 1))))
    triples = [as_triples(np.concatenate([into, out, known])), as_triples([]), as_triples([])]
    graph = KnowledgeGraph.from_ids(entities, Vocabulary("relation", ("a", "b", "c")), triples, "hub")
    for counting in COUNTINGS:
        rules = mine(graph, config.Rules(min_precision=ALL, counting=counting)).rules
        assert [str(rule) for rule in rules.rules] == ["a(X, Y) & b(Y, Z) => c(X, Z)"]
        assert (rules.support.tolist(), rules.hits.tolist()) == ([n * n], [n])
    with pytest.raises(InputError, match="10,000,000,000 groundings"):
        Grounder(graph, rules.rules, "distinct").network  # noqa: B018 (a cached property)


NEW_ROWS = """
import itertools
import numpy as np
import plogicnet.grounding.sql.duckdb as sql
from plogicnet.config import Config
from plogicnet.graph import KnowledgeGraph
from plogicnet.grounding.engine import GroundingTask
from plogicnet.grounding.native.mining import mine
from plogicnet.grounding.rulebook import collect_rules
from plogicnet.rules import Step, chain_rule, parse_rule
from plogicnet.support.errors import InputError

assert Config().rules.patterns[-2:] == ("transitive", "fork")
assert parse_rule("r(X, Y) & r(Y, Z) => r(X, Z)").pattern == "transitive"
assert parse_rule("r(X, Y) & s(Y, Z) => r(X, Z)").pattern == "composition"
sql.CHUNK_PATHS = 3
facts = np.random.default_rng(0).integers(0, [6, 3, 6], (30, 3)).tolist()
graph = KnowledgeGraph.from_names([(f"e{h}", f"r{r}", f"e{t}") for h, r, t in facts])
low = {f"rules.min_precision.{pattern}": 0.0 for pattern in Config().rules.patterns}
for counting in ("distinct", "paths"):
    config = Config().with_values({**low, "rules.counting": counting})
    two = config.with_values({"rules.patterns": ["transitive", "composition"]}).rules
    native, by_sql = mine(graph, two), sql.mine(graph, two)
    assert native.rules.rows() == by_sql.rules.rows()
    assert native.n_candidates == by_sql.n_candidates
    assert min(native.rules.counts()[pattern] for pattern in two.patterns) > 0
    forks = sql.mine(graph, config.with_values({"rules.patterns": ["fork"]}).rules).rules
    every = [
        chain_rule([Step(a, False), Step(b, True)], c) for a, b, c in itertools.product(graph.relations.names, repeat=3)
    ]
    support, hits = sql.SQL.count(GroundingTask(graph, every, counting))
    tried = {(rule, n, m) for rule, n, m in zip(every, support.tolist(), hits.tolist()) if m}
    assert set(zip(forks.rules, forks.support.tolist(), forks.hits.tolist())) == tried
    assert tried
assert collect_rules(graph, config).n_candidates == sql.mine(graph, config.rules).n_candidates
try:
    collect_rules(graph, config.with_values({"grounding.engine": "native"}))
except InputError as error:
    print(error)
"""


def test_a_new_shape_needs_only_a_table_row(tmp_path: Path) -> None:
    """Adds two rows to the table in a copy of the package. The native engine can mine only one of them."""
    package = Path(plogicnet.__file__).parent
    shutil.copytree(package, tmp_path / "plogicnet", ignore=shutil.ignore_patterns("*.nbi", "*.nbc"))
    table = tmp_path / "plogicnet/config/shapes.py"
    rows = table.read_text().replace(
        'ChainShape("composition", (True, True), None', 'ChainShape("composition", (True, True), False'
    )
    more = """    ChainShape("transitive", (True, True), True, 0.6, "two steps forwards, the same relation"),
    ChainShape("fork", (False, True), None, 0.9, "one step backwards, one forwards"),
)


def shapes_of("""
    table.write_text(rows.replace(")\n\n\ndef shapes_of(", more))
    done = subprocess.run(
        [sys.executable, "-c", NEW_ROWS],
        env={**os.environ, "PYTHONPATH": str(tmp_path), "NUMBA_DISABLE_JIT": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "no engine of grounding.engine=native can mine all of composition, " in done.stdout


@given(st.lists(st.booleans(), min_size=1, max_size=3), st.booleans())
def test_a_chain_has_at_most_one_shape(steps: list[bool], same: bool) -> None:
    assert sum(shape.matches(steps, same) for shape in CHAIN_SHAPES) <= 1
