"""Native mining: thresholds, shapes, hubs, and the counts of the authors' program. See also the contract."""

import os
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import plogicnet
from plogicnet import config
from plogicnet.config.shapes import CHAIN_SHAPES
from plogicnet.graph import KnowledgeGraph, Vocabulary, as_triples, open_graph
from plogicnet.grounding.engine import CountingMode, GroundingTask
from plogicnet.grounding.grounder import Grounder
from plogicnet.grounding.mining import mine_constraints
from plogicnet.grounding.native.engine import NATIVE
from plogicnet.grounding.native.mining import mine
from plogicnet.support.errors import InputError
from reference import COUNTINGS, as_set, graphs, numbered_graph

ALL = config.MinPrecision(0, 0, 0, 0)


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
