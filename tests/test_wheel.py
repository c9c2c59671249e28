"""The wheel and the sdist contain the right files, and every dependency is listed with its licence."""

import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path, PurePosixPath

import pytest

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT / "release"))

import licences  # noqa: E402


def repository_files(*paths: str) -> set[str]:
    """Return the files that git tracks or would add; removed files are left out."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", *paths]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip("not a git checkout, so the files cannot be listed")
    return {name for name in done.stdout.split("\0") if name and (ROOT / name).is_file()}


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    pytest.importorskip("hatchling")
    folder = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "hatchling", "build", "--directory", str(folder)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return {"wheel": next(folder.glob("*.whl")), "sdist": next(folder.glob("*.tar.gz"))}


def test_the_wheel_contains_only_the_package(built: dict[str, Path]) -> None:
    with zipfile.ZipFile(built["wheel"]) as wheel:
        names = set(wheel.namelist())
    metadata = {name for name in names if ".dist-info/" in name.split("plogicnet", 1)[1]}
    assert names - metadata == {name.removeprefix("src/") for name in repository_files("src")}
    assert {PurePosixPath(name).name for name in metadata} >= {"METADATA", "entry_points.txt", "LICENSE"}
    package_files = names - metadata
    for required in (
        *("config/presets/best/family.yaml", "graph/datasets/datasets.yaml"),
        *("web/static/page.html", "py.typed"),
    ):
        assert f"plogicnet/{required}" in package_files
    assert not any("reproduction" in name for name in package_files)


def test_the_sdist_contains_the_files_to_build_and_test(built: dict[str, Path]) -> None:
    with tarfile.open(built["sdist"]) as sdist:
        names = {name.split("/", 1)[1] for name in sdist.getnames()}
    expected = repository_files("src", "reproduction", "tests", "docs", "benchmarks", "release", "fuzz", "torture")
    assert names >= expected | {"pyproject.toml", "README.md", "LICENSE", "Makefile", "constraints.txt", "conftest.py"}
    assert not {name for name in names if name.split("/")[0] in (".venv", "dist", "runs", "data")}


def test_every_dependency_is_listed_with_its_licence() -> None:
    rows = [line.strip("| ").split(" | ") for line in licences.PAGE.read_text(encoding="utf-8").splitlines()]
    licence_of = {row[0]: row[1:] for row in rows if len(row) == 3}
    assert set(licences.direct_dependencies()) == set(licence_of) - {"package", "---"}
    for name, extras in licences.direct_dependencies().items():
        assert licence_of[name][0] == ", ".join(extras)
        assert licence_of[name][1].strip()
