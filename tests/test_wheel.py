"""The wheel holds exactly the tree's modules, and only under ``shardc/``."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

FOLDERS = (
    "native",
    "hlo",
    "sharding",
    "costs",
    "collectives",
    "partitioner",
    "compiler",
    "launcher",
    "frontends",
    "analysis",
    "service",
)
NO_SOURCES = shutil.ignore_patterns("__pycache__", "*.egg-info")
DATA = {".c", ".css", ".h", ".hlo", ".html", ".inc", ".js", ".mlir", ".svg", ".toml", ".typed"}


def wanted(repository: Path) -> set[str]:
    """Every module and data file of the package, as the wheel should name it."""
    files: set[str] = set()
    for folder in FOLDERS:
        files |= {f"shardc/{p.relative_to(repository)}" for p in (repository / folder).rglob("*") if keep(p)}
    for path in (repository / "shardc").iterdir():
        if path.is_symlink():
            continue
        found = [path] if path.is_file() else path.rglob("*")
        files |= {str(p.relative_to(repository)) for p in found if keep(p)}
    return files


def keep(path: Path) -> bool:
    return path.is_file() and (path.suffix in DATA or path.suffix == ".py")


@pytest.fixture(scope="module")
def wheel(repository: Path, tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    source = tmp_path_factory.mktemp("source")
    for name in (*FOLDERS, "shardc", "src"):
        shutil.copytree(repository / name, source / name, symlinks=True, ignore=NO_SOURCES)
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(repository / name, source / name)
    out = tmp_path_factory.mktemp("wheel")
    command = [
        sys.executable,
        "-m",
        "pip",
        "wheel",
        "--no-deps",
        "--no-build-isolation",
        "-q",
        "-w",
        str(out),
        str(source),
    ]
    subprocess.run(command, check=True, capture_output=True, text=True)
    (path,) = out.glob("*.whl")
    with zipfile.ZipFile(path) as archive:
        return archive.namelist()


def test_wheel_holds_exactly_the_modules(wheel: list[str], repository: Path) -> None:
    inside = {n for n in wheel if ".dist-info/" not in n}
    assert inside == wanted(repository)


def test_everything_lies_under_the_package(wheel: list[str]) -> None:
    assert {n.split("/")[0] for n in wheel if ".dist-info/" not in n} == {"shardc"}


def test_links_point_at_the_folders(repository: Path) -> None:
    for folder in FOLDERS:
        link = repository / "shardc" / folder
        assert link.is_symlink()
        assert link.resolve() == repository / folder
    assert (repository / "src" / "shardc").resolve() == repository / "shardc"


def test_import_works_beside_a_clone(tmp_path: Path) -> None:
    """A folder named ``shardc`` without ``__init__.py`` hides nothing, and folders of the clone are no modules."""
    (tmp_path / "shardc" / "compiler").mkdir(parents=True)
    code = (
        "import shardc; from importlib.util import find_spec\n"
        f"print(shardc.Mesh.__name__, [name for name in {(*FOLDERS, 'tests', 'tools')} if find_spec(name)])"
    )
    # The full run puts the clone into PYTHONPATH, for the plugin that records its tests.
    environ = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, cwd=tmp_path, env=environ, capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("Mesh []\n", "")
