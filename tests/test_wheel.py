"""The distributions: the wheel holds the files of the package and no others; every dependency has a licence listed."""

import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path, PurePosixPath

import pytest

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT / "release"))

import licences  # noqa: E402


def listed(*words: str) -> set[str]:
    """The repository's files, tracked or about to be, but for removed ones."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", *words]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip("this is no checkout, so there is nothing to compare with")
    return {name for name in done.stdout.split("\0") if name and (ROOT / name).is_file()}


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    pytest.importorskip("hatchling")
    folder = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "hatchling", "build", "--directory", str(folder)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return {"wheel": next(folder.glob("*.whl")), "sdist": next(folder.glob("*.tar.gz"))}


def test_the_wheel_holds_the_package_and_nothing_else(built: dict[str, Path]) -> None:
    with zipfile.ZipFile(built["wheel"]) as wheel:
        names = set(wheel.namelist())
    about = {name for name in names if ".dist-info/" in name.split("plogicnet", 1)[1]}
    assert names - about == {name.removeprefix("src/") for name in listed("src")}
    assert {PurePosixPath(name).name for name in about} >= {"METADATA", "entry_points.txt", "LICENSE"}
    kept = names - about
    for needed in (
        *("config/presets/best/family.yaml", "graph/datasets/datasets.yaml"),
        *("web/static/page.html", "py.typed"),
    ):
        assert f"plogicnet/{needed}" in kept
    assert not any("reproduction" in name for name in kept)


def test_the_sdist_holds_what_is_needed_to_build_and_to_test(built: dict[str, Path]) -> None:
    with tarfile.open(built["sdist"]) as sdist:
        names = {name.split("/", 1)[1] for name in sdist.getnames()}
    meant = listed("src", "reproduction", "tests", "docs", "benchmarks", "release", "fuzz", "torture")
    assert names >= meant | {"pyproject.toml", "README.md", "LICENSE", "Makefile", "constraints.txt", "conftest.py"}
    assert not {name for name in names if name.split("/")[0] in (".venv", "dist", "runs", "data")}


def test_every_dependency_is_listed_with_its_licence() -> None:
    rows = [line.strip("| ").split(" | ") for line in licences.PAGE.read_text(encoding="utf-8").splitlines()]
    licence_of = {row[0]: row[1:] for row in rows if len(row) == 3}
    assert set(licences.direct()) == set(licence_of) - {"package", "---"}
    for name, places in licences.direct().items():
        assert licence_of[name][0] == ", ".join(places)
        assert licence_of[name][1].strip()
