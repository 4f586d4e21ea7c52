"""Every notebook of the documentation runs from an empty folder, and prints what it shows apart from numbers."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient
from page_runner import agree

ROOT = Path(__file__).resolve().parent.parent
NOTEBOOKS = sorted((ROOT / "docs" / "tutorials").glob("*.ipynb"))
#: Notebooks whose package is large, so not every environment for tests has it.
NEEDS = {"pytorch-model": "torch"}


def _texts(cell: nbformat.NotebookNode) -> dict[str, str]:
    """What a cell shows as text: per stream, and as the value of its last line."""
    shown: dict[str, str] = {}
    for output in cell.get("outputs", ()):
        name = output.get("name", "value")
        shown[name] = shown.get(name, "") + (output.get("text") or output.get("data", {}).get("text/plain", ""))
    return shown


@pytest.mark.mpi
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_prints_what_it_shows(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if path.stem in NEEDS:
        pytest.importorskip(NEEDS[path.stem], reason=f"{path.name} needs pip install shardc[{NEEDS[path.stem]}]")
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    kept = nbformat.read(path, as_version=4)
    run = nbformat.from_dict(kept)
    NotebookClient(run, timeout=600, resources={"metadata": {"path": str(tmp_path)}}).execute()
    for before, after in zip(kept.cells, run.cells, strict=True):
        shown, printed = _texts(before), _texts(after)
        assert shown.keys() == printed.keys(), before.source
        for stream, text in shown.items():
            vary = "figures-vary" in before.metadata.get("tags", ())  # with the processor
            assert agree(printed[stream], text, vary), f"{before.source}\nprints\n{printed[stream]}\ninstead of\n{text}"


def test_there_are_notebooks_with_output() -> None:
    assert NOTEBOOKS
    for path in NOTEBOOKS:
        assert any(map(_texts, nbformat.read(path, as_version=4).cells)), path
