"""Loading: FB15k beside bare pyarrow in the same run; ten million synthetic triples loaded, indexed and written.

Each measurement is a child process of its own, so that its peak memory is its own.
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
    """This process's peak memory."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def fb15k() -> dict[str, float]:
    """Median seconds of our loading and of pyarrow's reading and dictionary-encoding, in turn; our peak memory."""
    import pyarrow as pa
    from pyarrow import csv

    from plogicnet.graph import open_graph
    from plogicnet.graph.datasets import locate

    folder = locate("fb15k")
    if folder is None:
        raise SystemExit("set PLOGICNET_DATA to a directory that holds fb15k")
    strings = dict.fromkeys("hrt", pa.dictionary(pa.int32(), pa.string()))

    def bare() -> None:
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
        for name, load in (("ours", lambda: open_graph("fb15k")), ("pyarrow", bare)):
            start = time.perf_counter()
            load()
            seconds[name].append(time.perf_counter() - start)
    ratio = float(np.median(seconds["ours"]) / np.median(seconds["pyarrow"]))
    return {"ratio_to_pyarrow": round(ratio, 2), "peak_mb_above_imports": round(above)}


def ten_million() -> dict[str, float]:
    """Peak memory of loading, indexing and writing ten million triples."""
    from plogicnet.graph import Answers, open_graph, write_graph

    folder = Path(sys.argv[2])
    before = peak_mb()
    graph = open_graph(folder / "train.tsv")
    graph.observed  # noqa: B018 (an index is built when first asked for)
    Answers.of(graph.train, len(graph.entities), "tail")
    Answers.of(graph.train, len(graph.entities), "head")
    write_graph(graph, folder / "written", "tsv")
    return {
        "triples": len(graph.train),
        "peak_mb": round(peak_mb()),
        "peak_mb_above_imports": round(peak_mb() - before),
    }


def make_ten_million(folder: Path) -> None:
    """A synthetic graph with a few popular entities and many rare ones."""
    rng = np.random.default_rng(0)
    with (folder / "train.tsv").open("w") as out:
        for _ in range(10):
            n = TRIPLES // 10
            heads = (ENTITIES * rng.random(n) ** 2).astype(int)
            tails = (ENTITIES * rng.random(n) ** 2).astype(int)
            relations = rng.integers(RELATIONS, size=n)
            rows = zip(heads.tolist(), relations.tolist(), tails.tolist(), strict=True)
            out.writelines(f"entity/{h}\trelation/{r}\tentity/{t}\n" for h, r, t in rows)


def child(part: str, *words: str) -> dict[str, float]:
    """Runs one part of this script in a process of its own."""
    done = subprocess.run([sys.executable, __file__, part, *words], stdout=subprocess.PIPE, text=True, check=True)
    figures: dict[str, float] = json.loads(done.stdout)
    return figures


def main() -> None:
    """Prints and saves docs/results/loading.json."""
    parts = {"fb15k": fb15k, "ten_million": ten_million}
    if len(sys.argv) > 1:
        print(json.dumps(parts[sys.argv[1]]()))
        return
    with tempfile.TemporaryDirectory() as folder:
        make_ten_million(Path(folder))
        figures = {"fb15k": child("fb15k"), "ten_million": child("ten_million", folder)}
    print(json.dumps(figures, indent=1))
    print(save("loading", dict(figures)))


if __name__ == "__main__":
    main()
