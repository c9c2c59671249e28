"""Loading time of FB15k, compared with plain pyarrow in the same run; peak memory of ten million synthetic triples.

Each measurement is a separate process with its own peak memory.
"""

import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from results import save

REPEATS = 5
TRIPLES, ENTITIES, RELATIONS = 10_000_000, 1_000_000, 500


def peak_mb() -> float:
    """Return the peak memory of this process."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def fb15k() -> dict[str, float]:
    """Return our median loading time divided by pyarrow's reading and dictionary encoding, and our peak memory."""
    import pyarrow as pa
    from pyarrow import csv

    from plogicnet.graph import open_graph
    from plogicnet.graph.datasets.registry import locate

    folder = locate("fb15k")
    if folder is None:
        raise SystemExit("Set PLOGICNET_DATA to a directory that contains fb15k.")
    strings = dict.fromkeys("hrt", pa.dictionary(pa.int32(), pa.string()))

    def read_with_pyarrow() -> None:
        for file in sorted(folder.glob("*.txt.gz")):
            csv.read_csv(
                file,
                read_options=csv.ReadOptions(column_names=list("hrt")),
                parse_options=csv.ParseOptions(delimiter="\t", quote_char=False),
                convert_options=csv.ConvertOptions(column_types=strings),
            )

    before = peak_mb()
    open_graph("fb15k")
    above = peak_mb() - before
    seconds: dict[str, list[float]] = {"ours": [], "pyarrow": []}
    for _ in range(REPEATS):
        for name, load in (("ours", lambda: open_graph("fb15k")), ("pyarrow", read_with_pyarrow)):
            start = time.perf_counter()
            load()
            seconds[name].append(time.perf_counter() - start)
    ratio = float(np.median(seconds["ours"]) / np.median(seconds["pyarrow"]))
    return {"ratio_to_pyarrow": round(ratio, 2), "peak_mb_above_imports": round(above)}


def ten_million() -> dict[str, float]:
    """Return the peak memory of loading, indexing and writing ten million triples."""
    from plogicnet.graph import AnswerIndex, open_graph, write_graph

    folder = Path(sys.argv[2])
    before = peak_mb()
    graph = open_graph(folder / "train.tsv")
    graph.observed  # noqa: B018 (builds the index)
    AnswerIndex.of(graph.train, len(graph.entities), "tail")
    AnswerIndex.of(graph.train, len(graph.entities), "head")
    write_graph(graph, folder / "written", "tsv")
    return {
        "triples": len(graph.train),
        "peak_mb": round(peak_mb()),
        "peak_mb_above_imports": round(peak_mb() - before),
    }


def make_ten_million(folder: Path) -> None:
    """Write a synthetic graph with a few frequent and many rare entities."""
    rng = np.random.default_rng(0)
    with (folder / "train.tsv").open("w") as out:
        for _ in range(10):
            n = TRIPLES // 10
            heads = (ENTITIES * rng.random(n) ** 2).astype(int)
            tails = (ENTITIES * rng.random(n) ** 2).astype(int)
            relations = rng.integers(RELATIONS, size=n)
            rows = zip(heads.tolist(), relations.tolist(), tails.tolist(), strict=True)
            out.writelines(f"entity/{h}\trelation/{r}\tentity/{t}\n" for h, r, t in rows)


def child(part: str, *arguments: str) -> dict[str, float]:
    """Run one part of this script in a separate process."""
    finished = subprocess.run(
        [sys.executable, __file__, part, *arguments], stdout=subprocess.PIPE, text=True, check=True
    )
    results: dict[str, float] = json.loads(finished.stdout)
    return results


def main() -> None:
    """Print the results and save docs/results/loading.json."""
    parts = {"fb15k": fb15k, "ten_million": ten_million}
    if len(sys.argv) > 1:
        print(json.dumps(parts[sys.argv[1]]()))
        return
    with tempfile.TemporaryDirectory() as folder:
        make_ten_million(Path(folder))
        results = {"fb15k": child("fb15k"), "ten_million": child("ten_million", folder)}
    print(json.dumps(results, indent=1))
    print(save("loading", dict(results)))


if __name__ == "__main__":
    main()
