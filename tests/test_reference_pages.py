"""The reference pages about data and environment variables are complete, as the code has it."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np

import shardc
from shardc import Mesh, P
from shardc.hlo.variables import VARIABLES

ROOT = Path(__file__).resolve().parent.parent
REFERENCE = ROOT / "docs" / "reference"


def rows(text: str) -> list[str]:
    """The words in code style in the first cells of a table's rows."""
    cells = [line.split(" | ")[0] for line in text.splitlines() if line.startswith("| `")]
    return [word for cell in cells for word in re.findall(r"`([^`]+)`", cell)]


def fields(name: str) -> list[str]:
    """The fields of the table behind a mark on the page about reports."""
    text = (REFERENCE / "report.md").read_text(encoding="utf-8").partition(f"<!-- fields: {name} -->\n")[2]
    return rows(text.partition("\n\n")[0])


def test_every_variable_has_one_row() -> None:
    product, _, others = (REFERENCE / "environment.md").read_text(encoding="utf-8").partition("## Of others")
    assert sorted(rows(product)) == sorted(VARIABLES)
    used = set()
    for folder in ("tests", "tools", "benchmarks"):
        for file in (ROOT / folder).rglob("*.py"):
            used |= set(re.findall(r"environ(?:\.get\(|\[)\"(SHARDC_[A-Z0-9_]+)\"", file.read_text(encoding="utf-8")))
    assert used - set(VARIABLES) <= set(rows(others))


def test_the_fields_are_those_of_the_data() -> None:
    x, w = np.ones((8, 4), np.float32), np.ones((4, 4), np.float32)
    program = shardc.trace(lambda x, w: x @ w, x, w, mesh=Mesh({"data": 2}), in_shardings=(P(None, "data"), P("data")))
    propagated = program.propagate()
    report = propagated.partition().report()
    assert sorted(fields("report")) == sorted(report)
    assert sorted(fields("memory")) == sorted(report["memory"])
    for array in report["parameters"] + report["results"]:
        assert sorted(fields("array")) == sorted(array)
    for collective in report["collectives"]:
        assert sorted(fields("collective")) == sorted(collective)
    assert report["collectives"]
    assert sorted(fields("provenance")) == sorted(propagated.provenance_dict())
