"""The table of `shardc partition`: the column of source lines."""

from __future__ import annotations

from typing import Any

import pytest

from shardc.analysis.report.fragments import partitioned_html
from shardc.cli.commands.partition import collectives_table, fitted_source
from shardc.cli.view import View


def row(name: str, source: str) -> dict[str, Any]:
    told = {"axes": ["x"], "group_size": 2, "count": 1, "wire_bytes": 64, "reason": "it is needed"}
    return {"op": name.partition(".")[0], "name": name, "source": source, **told}


FACTS: dict[str, Any] = {
    "name": "step",
    "devices": 2,
    "mesh": {"x": 2},
    "wire_bytes": 128,
    "flops": 0,
    "peak_bytes": 64,
    "peak_bytes_estimated": False,
    "collectives": [row("all-gather.2", ""), row("all-reduce.1", "/home/somebody/language/models/transformer.py:47")],
}


def test_a_row_without_a_source_has_an_empty_cell(capsys: pytest.CaptureFixture[str]) -> None:
    collectives_table(View(), FACTS)
    _, head, *rows = capsys.readouterr().out.splitlines()
    cells = [row[head.index("source") : head.index("reason")].strip() for row in rows]
    assert cells == ["", ".../language/models/transformer.py:47"]
    notebook = partitioned_html(FACTS)
    assert "transformer.py:47" in notebook and "all-gather.2" not in notebook


@pytest.mark.parametrize(
    ("source", "shown"),
    [
        ("step.py:17", "step.py:17"),
        ("", ""),
        ("a/b/model.py:3", "a/b/model.py:3"),
        ("C:\\users\\somebody\\work\\projects\\language\\model.py:3", ".../work/projects/language/model.py:3"),
        ("/" + "x" * 60 + ".py:12", ".../" + "x" * 60 + ".py:12"),
    ],
)
def test_the_name_of_the_file_and_the_line_are_kept(source: str, shown: str) -> None:
    assert fitted_source(source) == shown
