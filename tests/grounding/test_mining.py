"""Native mining: bounds, thresholds, shapes, hubs, and the counts of the authors' program; see also the contract."""

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
from plogicnet.grounding.engine import Counting, Job
from plogicnet.grounding.mining import mine_constraints
from plogicnet.grounding.native.engine import NATIVE
from plogicnet.grounding.native.mining import mine
from plogicnet.grounding.network import Network
from plogicnet.support.errors import InputError
from reference import COUNTINGS, as_set, graphs, numbered_graph

ALL = config.MinPrecision(0, 0, 0, 0)


@settings(max_examples=60, deadline=None)
@given(graphs(max_entities=3), st.sampled_from([0.0, 0.5, 0.75, 0.99, 1.0]))
def test_constraints(graph: KnowledgeGraph, least: float) -> None:
    chosen = config.Rules(min_precision=config.MinPrecision(irreflexive=least))
    table = mine_constraints(graph, chosen)
    kept = []
    for number, name in enumerate(graph.relations.names):
        facts = [(h, t) for h, r, t in as_set(graph.train) if r == number]
        proper = sum(h != t for h, t in facts)
        if facts and proper / len(facts) >= least:
            kept.append((f"=> not {name}(X, X)", len(facts), proper))
    assert list(zip(map(str, table.rules), table.support.tolist(), table.hits.tolist(), strict=True)) == kept
    assert not table.rules or set(table.patterns) == {"irreflexive"}
    assert mine(graph, chosen).constraints.rules == table.rules
    assert len(mine_constraints(graph, replace(chosen, irreflexive=False))) == 0


@pytest.mark.parametrize("counting", COUNTINGS)
def test_self_loops_alone_support_nothing_but_paths(counting: Counting) -> None:
    """r(a, a) is its own mirror image and its own composition."""
    mined = mine(numbered_graph(2, 1, [(0, 0, 0)]), config.Rules(counting=counting, min_precision=ALL))
    assert mined.rules.counts() == {
        "composition": int(counting == "paths"),
        "inverse": 0,
        "symmetric": int(counting == "paths"),
        "subrelation": 0,
    }


def test_a_precision_at_the_threshold_is_kept() -> None:
    """3 of 30 is 0.1, however the two are rounded."""
    train = [(i, 0, i + 1) for i in range(0, 60, 2)] + [(i + 1, 1, i) for i in range(0, 6, 2)]
    mined = mine(numbered_graph(60, 2, train), config.Rules())
    assert [(str(r), n) for r, n in zip(mined.rules.rules, mined.rules.support, strict=True)] == [
        ("r0(X, Y) => r1(Y, X)", 30),
        ("r1(X, Y) => r0(Y, X)", 3),
    ]


@pytest.mark.parametrize(
    ("name", "least", "candidates", "rules", "hidden", "groundings"),
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
def test_the_counts_that_the_authors_program_prints(
    name: str, least: float, candidates: int, rules: dict[str, int], hidden: int, groundings: int | None
) -> None:
    """One threshold for all patterns; the figures are printed by the authors' program."""
    root = os.environ.get("PLOGICNET_DATA")
    if not root or not (Path(root) / name).is_dir():
        pytest.skip(f"PLOGICNET_DATA is not set to a directory that holds {name}")
    graph = open_graph(name)
    thresholds = config.MinPrecision(least, least, least, least)
    mined = mine(graph, config.Rules(min_precision=thresholds, counting="paths"))
    network = NATIVE.ground(Job(graph, mined.rules.rules, "paths"))
    assert (mined.candidates, mined.rules.counts(), len(network.hidden)) == (candidates, rules, hidden)
    assert groundings is None or network.size == groundings


def test_a_hub_of_a_hundred_thousand_edges_is_counted_without_walking_every_path() -> None:
    """Ten thousand million two-step paths lead through the hub; counts are exact, and groundings are refused."""
    n = 100_000
    spokes, rim, hub = np.arange(n), n + np.arange(n), np.full(n, 2 * n)
    known = np.column_stack([spokes, np.full(n, 2), np.random.default_rng(0).permutation(rim)])
    into, out = np.column_stack([spokes, np.zeros(n), hub]), np.column_stack([hub, np.ones(n), rim])
    entities = Vocabulary("entity", tuple(map(str, range(2 * n + 1))))
    triples = [as_triples(np.concatenate([into, out, known])), as_triples([]), as_triples([])]
    graph = KnowledgeGraph.from_numbers(entities, Vocabulary("relation", ("a", "b", "c")), triples, "hub")
    for counting in COUNTINGS:
        rules = mine(graph, config.Rules(min_precision=ALL, counting=counting)).rules
        assert [str(rule) for rule in rules.rules] == ["a(X, Y) & b(Y, Z) => c(X, Z)"]
        assert (rules.support.tolist(), rules.hits.tolist()) == ([n * n], [n])
    with pytest.raises(InputError, match="10,000,000,000 groundings"):
        Network(graph, rules.rules, "distinct").grounded  # noqa: B018 (they are made when first asked for)


NEW_ROWS = """
import itertools
import numpy as np
import plogicnet.grounding.sql.duckdb as sql
from plogicnet.config import Config
from plogicnet.graph import KnowledgeGraph
from plogicnet.grounding.engine import Job
from plogicnet.grounding.native.mining import mine
from plogicnet.grounding.rulebook import find_rules
from plogicnet.rules import Step, chain_rule, parse_rule
from plogicnet.support.errors import InputError

assert Config().rules.patterns[-2:] == ("transitive", "fork")
assert parse_rule("r(X, Y) & r(Y, Z) => r(X, Z)").pattern == "transitive"
assert parse_rule("r(X, Y) & s(Y, Z) => r(X, Z)").pattern == "composition"
sql.PATHS_AT_ONCE = 3
facts = np.random.default_rng(0).integers(0, [6, 3, 6], (30, 3)).tolist()
graph = KnowledgeGraph.from_names([(f"e{h}", f"r{r}", f"e{t}") for h, r, t in facts])
low = {f"rules.min_precision.{pattern}": 0.0 for pattern in Config().rules.patterns}
for counting in ("distinct", "paths"):
    config = Config().with_values({**low, "rules.counting": counting})
    two = config.with_values({"rules.patterns": ["transitive", "composition"]}).rules
    native, found = mine(graph, two), sql.mine(graph, two)
    assert native.rules.rows() == found.rules.rows()
    assert native.candidates == found.candidates
    assert min(native.rules.counts()[pattern] for pattern in two.patterns) > 0
    forks = sql.mine(graph, config.with_values({"rules.patterns": ["fork"]}).rules).rules
    every = [
        chain_rule([Step(a, False), Step(b, True)], c) for a, b, c in itertools.product(graph.relations.names, repeat=3)
    ]
    support, hits = sql.SQL.count(Job(graph, every, counting))
    tried = {(rule, n, m) for rule, n, m in zip(every, support.tolist(), hits.tolist()) if m}
    assert set(zip(forks.rules, forks.support.tolist(), forks.hits.tolist())) == tried
    assert tried
assert find_rules(graph, config).candidates == sql.mine(graph, config.rules).candidates
try:
    find_rules(graph, config.with_values({"grounding.engine": "native"}))
except InputError as error:
    print(error)
"""


def test_a_new_shape_is_a_row(tmp_path: Path) -> None:
    """A copy of the package whose table has two rows more: settings, names and both engines know them.

    The native engine counts the one and refuses the other.
    """
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
    assert "no engine of grounding.engine=native mines all of composition, " in done.stdout


@given(st.lists(st.booleans(), min_size=1, max_size=3), st.booleans())
def test_a_chain_has_at_most_one_shape(steps: list[bool], same: bool) -> None:
    assert sum(shape.fits(steps, same) for shape in CHAIN_SHAPES) <= 1
