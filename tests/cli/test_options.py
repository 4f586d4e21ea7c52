"""Options and output forms."""

from __future__ import annotations

import json

import pytest

from shardc.cli.options import parse_annotation, parse_mesh
from shardc.cli.view import View, bytes_text, seconds_text
from shardc.hlo.errors import InputError
from shardc.hlo.ir.mesh import Mesh


def test_meshes() -> None:
    assert parse_mesh("") is None
    assert parse_mesh("data=2, model=4") == Mesh({"data": 2, "model": 4})
    for text in ("data", "=2", "data=x", "data=-1", "data=2=3", "data=\u0662"):
        with pytest.raises(InputError, match="is not an axis and its size"):
            parse_mesh(text)


def test_annotations() -> None:
    assert parse_annotation("w1=None,model") == ("w1", "None,model")
    assert parse_annotation("state['a=b']=data") == ("state['a=b']", "data")
    assert parse_annotation("layers.*.w = ?,a+b") == ("layers.*.w", "?,a+b")
    for text in ("w1", "=None", "w1="):
        with pytest.raises(InputError, match="is not NAME=SPEC"):
            parse_annotation(text)


def test_units() -> None:
    assert [bytes_text(n) for n in (0, 1023, 1536, 5 << 30, 1 << 50)] == [
        *("0 B", "1023 B", "1.5 KiB", "5.0 GiB", "1024.0 TiB"),
    ]
    assert [seconds_text(s) for s in (5e-7, 0.0015, 2.5, 120)] == ["0.5 us", "1.5 ms", "2.5 s", "120 s"]


def test_tables_and_json(capsys: pytest.CaptureFixture[str]) -> None:
    view = View()
    view.result([1], lambda: view.table("title", ("a", "long name"), [[1, "x"], ["[b]", ""]]))
    assert capsys.readouterr().out == "title\na    long name\n1    x\n[b]\n"
    View(json=True).result({"a": (1, 2)}, lambda: None)
    assert json.loads(capsys.readouterr().out) == {"a": [1, 2]}


def test_only_rank_0_speaks(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("PMI_SIZE", "4")
    for rank in ("0", "1"):
        monkeypatch.setenv("PMI_RANK", rank)
        view = View(verbose=True)
        view.log(f"log {rank}")
        view.detail("detail\nin two lines")
        view.result(1, lambda: View().text("result"))
    captured = capsys.readouterr()
    assert captured.out == "result\n"
    assert captured.err == "[0] log 0\n[0] detail\n[0] in two lines\n"


def test_what_a_size_of_a_mesh_is_comes_with_the_error() -> None:
    for text in ("data=0", "data=2;model=2"):
        with pytest.raises(InputError, match="a size of 1 or more, axes separated by commas"):
            parse_mesh(text)
